"""Prediction: folding samples into the batch changes nothing, and the summaries are what they say."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.prediction.predictions import CategoricalPrediction, GaussianPrediction, Prediction

pytestmark = pytest.mark.filterwarnings("ignore:All .* samples of .* are the same")  # many tests want no noise


class Classifier(nn.Module):
    """Attention and a head; `scale` is an argument that is not a tensor."""

    def __init__(self, posterior: ba.Posterior, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=posterior)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        return self.head(self.dropout(self.attention(x, x, x, mask)[0]).mean(1)) * scale


def test_folding_gives_each_example_its_own_samples_in_its_own_place() -> None:
    """With a posterior of no noise every sample is the plain output, whatever the chunks."""
    model, x = Classifier(ba.Softmax()), torch.randn(7, 5, 8)
    mask = torch.zeros(7, 5, dtype=torch.bool)
    mask[2:, 3:] = True
    plain = model.eval()(x, mask)
    for max_rows in (1, 3, 10, 1000):
        prediction = ba.predict(model, (x, mask), samples=5, max_rows=max_rows)
        assert torch.allclose(prediction.samples, plain.expand(5, 7, 4), atol=1e-6)


def test_samples_have_the_law_of_separate_passes() -> None:
    model, x = Classifier(ba.Weibull(0.7)), torch.randn(2, 5, 8)
    folded = ba.predict(model, x, samples=4000, max_rows=500).samples[:, 1, 2]
    with torch.no_grad(), ba.sampling():
        apart = torch.stack([model(x)[1, 2] for _ in range(1000)])
    assert stats.ks_2samp(folded.numpy(), apart.numpy()).pvalue > 1e-3
    assert folded.std() > 1e-3


class Branching(Classifier):
    """Looks at the data after its attention, which vmap cannot run."""

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        logits = super().forward(x, mask, scale)
        return logits if logits.mean() > -1e9 else -logits


def test_what_comes_before_the_first_random_layer_is_computed_once() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), Classifier(ba.Weibull(0.7))), torch.randn(2, 5, 8)
    per_sample: list[bool] = []
    for layer in (model[0], model[1].head):
        layer.register_forward_hook(
            lambda _module, _inputs, output: per_sample.append(torch._C._functorch.is_batchedtensor(output))
        )
    ba.predict(model, x, samples=4)
    assert per_sample == [False, True]


def test_a_model_that_vmap_cannot_run_is_folded() -> None:
    x = torch.randn(2, 5, 8)
    plain = Branching(ba.Softmax()).eval()
    assert torch.allclose(ba.predict(plain, x, samples=3).samples, plain(x).expand(3, 2, 4), atol=1e-6)
    model = Branching(ba.Weibull(0.7))
    folded = ba.predict(model, x, samples=2000).samples
    model.__class__ = Classifier
    together = ba.predict(model, x, samples=2000).samples
    assert stats.ks_2samp(folded[:, 1, 2].numpy(), together[:, 1, 2].numpy()).pvalue > 1e-3


def test_examples_of_a_batch_and_samples_are_independent() -> None:
    model = Classifier(ba.Weibull(0.7))
    x = torch.randn(1, 5, 8).expand(2, 5, 8)
    samples = ba.predict(model, x, samples=4000).samples[..., 0]
    assert abs(torch.corrcoef(samples.T)[0, 1].item()) < 4 / math.sqrt(4000)
    assert abs(torch.corrcoef(torch.stack([samples[:-1, 0], samples[1:, 0]]))[0, 1].item()) < 4 / math.sqrt(4000)


def test_inputs_may_be_a_dict_and_keep_what_is_no_tensor() -> None:
    model, x = Classifier(ba.Softmax()), torch.randn(3, 5, 8)
    one = ba.predict(model, {"x": x, "scale": 2.0}, samples=2).samples
    assert torch.allclose(one[0], model.eval()(x) * 2.0, atol=1e-6)


def test_modes_and_gradients_are_left_as_they_were() -> None:
    model, x = Classifier(ba.Weibull(1.0), dropout=0.5), torch.randn(3, 5, 8)
    model.train()
    model.head.eval()
    prediction = ba.predict(model, x, samples=3)
    assert (model.training, model.attention.training, model.head.training) == (True, True, False)
    assert not prediction.samples.requires_grad


def test_dropout_is_off_unless_asked_for() -> None:
    model, x = Classifier(ba.Softmax(), dropout=0.5), torch.randn(3, 5, 8)
    assert ba.predict(model, x, samples=8).samples.std(0).max() < 1e-6
    assert ba.predict(model, x, samples=8, dropout=True).samples.std(0).max() > 1e-2


def test_mc_dropout_goes_round_torchs_fast_path() -> None:
    """In eval mode torch's encoder layer runs one fused operator that goes past its dropout layers."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True), 1)
    samples = ba.predict(encoder, torch.randn(3, 5, 8), samples=6, dropout=True, likelihood="values").samples
    assert samples.std(0).max() > 1e-2
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_generator_decides_the_samples() -> None:
    model, x = Classifier(ba.Weibull(1.0)), torch.randn(3, 5, 8)
    draws = [
        ba.predict(model, x, samples=4, generator=torch.Generator().manual_seed(seed)).samples for seed in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_categorical_summaries() -> None:
    probabilities = torch.tensor([[[0.9, 0.1]], [[0.1, 0.9]]])
    prediction = CategoricalPrediction(probabilities.log())
    assert torch.allclose(prediction.mean, torch.tensor([[0.5, 0.5]]))
    assert prediction.entropy.item() == pytest.approx(math.log(2))
    inner = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert prediction.expected_entropy.item() == pytest.approx(inner)
    assert prediction.mutual_information.item() == pytest.approx(math.log(2) - inner)
    assert prediction.log_prob(torch.tensor([0])).item() == pytest.approx(math.log(0.5))
    assert prediction.variance[0, 0].item() == pytest.approx(0.16)
    lower, upper = CategoricalPrediction(torch.randn(4000, 2, 3)).interval(0.8)
    assert (lower < upper).all()


def test_gaussian_summaries_are_the_mixtures() -> None:
    means, scales = torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [2.0]])
    prediction = GaussianPrediction(means, scales)
    assert prediction.mean.item() == 2.0
    assert prediction.aleatoric_variance.item() == pytest.approx(2.5)
    assert prediction.epistemic_variance.item() == pytest.approx(4.0)
    draws = torch.cat([torch.randn(400_000), 4 + 2 * torch.randn(400_000)])
    assert prediction.variance.item() == pytest.approx(draws.var().item(), rel=0.01)
    for level in (0.05, 0.5, 0.9):
        share = (draws <= prediction.quantile(level)).float().mean().item()
        assert share == pytest.approx(level, abs=0.003)
    density = 0.5 * (stats.norm.pdf(1.0) + stats.norm.pdf(1.0, 4, 2))
    assert prediction.log_prob(torch.tensor([1.0])).item() == pytest.approx(math.log(density), rel=1e-5)


def test_values_have_quantiles_of_their_samples() -> None:
    samples = torch.randn(20_000, 2)
    lower, upper = Prediction(samples).interval(0.9)
    assert torch.allclose(lower, torch.full((2,), -1.645), atol=0.05)
    assert torch.allclose(upper, torch.full((2,), 1.645), atol=0.05)


def test_a_gaussian_model_is_predicted() -> None:
    class Regression(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x.sum(1), torch.ones(len(x))

    x = torch.randn(3, 4)
    prediction = ba.predict(Regression(), x, samples=5, likelihood="gaussian")
    assert torch.allclose(prediction.mean, x.sum(1))
    assert torch.allclose(prediction.variance, torch.ones(3))


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    model, x = Classifier(ba.Softmax()), torch.randn(3, 5, 8)
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1, got 0"):
        ba.predict(model, x, samples=0)
    with pytest.raises(ValueError, match="Did you mean 'gaussian'"):
        ba.predict(model, x, likelihood="gausian")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"one batch size, first dimension; found sizes \[2, 3\]"):
        ba.predict(model, (x, torch.zeros(2, 5)))
    for given in (x.numpy(), torch.utils.data.DataLoader(x)):  # pyright: ignore[reportArgumentType]
        for function in (ba.predict, ba.attention_weights, ba.weight_space.laplace):
            with pytest.raises(
                ValueError, match=rf"got a {type(given).__name__} without any: .* one batch after the other"
            ):
                function(model.eval(), given)
    with pytest.raises(TypeError, match=r"not a tensor: say with output= how"):
        ba.predict(nn.MultiheadAttention(8, 2), (x, x, x))
    with pytest.raises(TypeError, match=r"needs a model that returns \(mean, standard deviation\)"):
        ba.predict(model, x, likelihood="gaussian")
    with pytest.raises(ValueError, match="needs the batch first"):
        ba.predict(nn.Flatten(0), x, samples=2)
    with pytest.raises(ValueError, match="has no dropout layer"):
        ba.predict(nn.Linear(8, 2), x, dropout=True)
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\), got 1"):
        ba.predict(model, x, samples=2).quantile(1)


def test_the_point_estimate_is_the_model_in_eval_mode() -> None:
    model, x = Classifier(ba.Weibull(1.0), dropout=0.5), torch.randn(3, 5, 8)
    prediction = ba.predict(model, x, point_estimate=True)
    assert model.training
    torch.testing.assert_close(prediction.samples, model.eval()(x)[None])
    with pytest.raises(ValueError, match="point_estimate=True has no noise"):
        ba.predict(model, x, point_estimate=True, dropout=True)


def test_mc_dropout_reaches_attention_weights_that_layers_drop_by_their_own_mode() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the hf extra")
    geometric = pytest.importorskip("torch_geometric.nn", reason="needs the graphs extra")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.5,
    )
    bert = transformers.BertForSequenceClassification(config)
    samples = ba.predict(bert, torch.randint(0, 20, (3, 6)), samples=4, dropout=True).samples
    assert (samples.std(0) > 0).all()

    class OnNodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = geometric.GATConv(4, 2, dropout=0.5)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
            return torch.stack([self.layer(x, edges) for x in batch])

    samples = ba.predict(OnNodes(), torch.randn(1, 3, 4), samples=8, dropout=True, likelihood="values").samples
    assert (samples.std(0) > 0).all()


def test_random_weights_are_drawn_once_for_each_sample_and_for_all_inputs() -> None:
    model = ba.weight_space.mean_field(torch.nn.Linear(3, 2), "laplace", initial_scale=0.5)
    x = torch.randn(1, 3).repeat(5, 1)
    samples = ba.predict(model, x, samples=6, max_rows=2, likelihood="values").samples
    torch.testing.assert_close(samples, samples[:, :1].expand_as(samples))  # a row alone is rounded in another way
    assert samples[:, 0, 0].unique().numel() == 6


def test_it_is_said_that_nothing_is_random() -> None:
    x = torch.randn(3, 5, 8)
    with pytest.warns(
        UserWarning,
        match="All 4 samples of Classifier are the same: nothing in it is random. Make it so with ba.convert",
    ):
        ba.predict(Classifier(ba.Softmax()), x, samples=4)


def test_an_empty_batch_gives_an_empty_prediction() -> None:
    for model in (Classifier(ba.Weibull(0.7)), ba.weight_space.mean_field(Classifier(ba.Softmax()), "gaussian")):
        prediction = ba.predict(model, torch.zeros(0, 5, 8), samples=6)
        assert prediction.samples.shape == (6, 0, 4)
        assert prediction.mean.shape == (0, 4)


def test_an_error_of_the_model_is_not_held_against_vmap() -> None:
    """The first call fails by the caller's fault; what comes after it is what it would have been without it."""
    torch.manual_seed(0)
    model, x = Classifier(ba.Weibull(0.7)), torch.randn(3, 5, 8)
    twin = copy.deepcopy(model)
    with pytest.raises(RuntimeError):
        ba.predict(model, torch.randn(3, 5, 9), samples=4)
    first, second = (ba.predict(m, x, samples=4, generator=torch.Generator().manual_seed(1)) for m in (model, twin))
    assert torch.equal(first.samples, second.samples)


class Counting(nn.Module):
    """Remembers how many rows each pass through it had."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []
        self.expand = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        return self.expand(x)


@pytest.mark.parametrize("max_rows", [1, 3, 8, 100])
def test_what_is_not_random_is_computed_once_for_each_input_whose_samples_fit(max_rows: int) -> None:
    trunk = Counting()
    model = nn.Sequential(trunk, Classifier(ba.Weibull(1.0)))
    samples = ba.predict(model, torch.randn(5, 4, 8), samples=4, max_rows=max_rows).samples
    assert samples.shape[:2] == (4, 5)
    passes = -(-4 // max_rows) if max_rows < 4 else 1
    assert sum(trunk.rows) == 5 * passes
    assert max(trunk.rows) <= max(1, max_rows // 4)


@pytest.mark.parametrize(("cache", "largest"), [(1, 64), (100 * 4 * 8 * 4, 100), (1 << 40, 1024)])
def test_without_max_rows_parts_are_as_large_as_the_cache(
    monkeypatch: pytest.MonkeyPatch, cache: int, largest: int
) -> None:
    """A row is four positions of eight features in float32; what comes after the first part is as large as fits."""
    monkeypatch.setattr("bayesattn.prediction.sampled.cache_bytes", lambda: cache)
    trunk = Counting()
    model = nn.Sequential(trunk, nn.Linear(8, 8), Classifier(ba.Weibull(1.0)))
    x = torch.randn(1500, 4, 8)
    prediction = ba.predict(model, x, samples=1)
    assert prediction.samples.shape[:2] == (1, 1500)
    assert trunk.rows[0] == 64
    assert sum(trunk.rows) == 1500
    assert max(trunk.rows) <= largest
    assert largest == 100 or max(trunk.rows) == largest


def test_without_max_rows_a_folded_batch_is_as_large_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vmap cannot run the model, rows are counted as they are."""
    monkeypatch.setattr("bayesattn.prediction.sampled.cache_bytes", lambda: 1)

    class Branching(Counting):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if bool(x.sum() < 1e9) else x

    trunk = Branching()
    model = nn.Sequential(Classifier(ba.Weibull(1.0)), trunk.expand, trunk, nn.Linear(8, 8))
    model[0].head = nn.Identity()
    assert ba.predict(model, torch.randn(40, 4, 8), samples=16).samples.shape[:2] == (16, 40)
    assert set(trunk.rows[-8:]) == {64}
