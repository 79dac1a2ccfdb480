"""`calibrate` from end to end: what it gives, what it promises, what it refuses."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.prediction.predictions import CategoricalPrediction


class Classifier(nn.Module):
    """Attention and a head, for sequences of three classes that their mean tells."""

    def __init__(self, posterior: ba.Posterior | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=posterior or ba.Softmax())
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.attention(x, x, x)[0]).mean(1))


def data(n: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Inputs, and labels drawn from twice as flat a distribution as the model says: it is too sure by a factor of two."""
    generator = torch.Generator().manual_seed(seed)
    x = 3.0 * torch.randn(n, 5, 8, generator=generator)
    with torch.no_grad():
        chances = (Classifier().eval()(x) * SHARP / 2).softmax(-1)
    return x, torch.multinomial(chances, 1, generator=generator)[:, 0]


SHARP = 6.0


def sharp(posterior: ba.Posterior | None = None) -> Classifier:
    model = Classifier(posterior)
    with torch.no_grad():
        model.head.weight.mul_(SHARP)
        model.head.bias.mul_(SHARP)
    return model


def test_a_model_that_is_too_sure_gets_its_temperature_and_the_prediction_of_today() -> None:
    model, x = sharp(), data(4)[0]
    knowing = ba.calibrate(model, data(2000))
    assert knowing.temperature.value == pytest.approx(2.0, rel=0.12)
    answer = knowing.predict(x, samples=8)
    assert isinstance(answer, CategoricalPrediction)
    assert isinstance(answer, ba.CalibratedPrediction)
    logits = model.eval()(x)
    assert torch.allclose(answer.mean, (logits / knowing.temperature.value).softmax(-1), atol=1e-6)
    assert torch.allclose(answer.energy, -logits.logsumexp(-1))
    assert torch.allclose(answer.max_logit, logits.amax(-1))
    assert "temperature" in str(knowing)


def test_scores_of_samples_are_means_over_the_samples() -> None:
    model, x = sharp(ba.Weibull(1.0)), data(6)[0]
    knowing = ba.calibrate(model, data(60), samples=5, generator=torch.Generator().manual_seed(0))
    answer = knowing.predict(x, generator=torch.Generator().manual_seed(7))
    samples = ba.predict(model, x, samples=5, generator=torch.Generator().manual_seed(7)).samples
    assert torch.allclose(answer.raw[0], samples, atol=1e-5)
    assert torch.allclose(answer.energy, -samples.logsumexp(-1).mean(0), atol=1e-5)
    assert torch.allclose(answer.max_logit, samples.amax(-1).mean(0), atol=1e-5)
    probabilities = samples.softmax(-1)
    assert torch.allclose(answer.score("confidence"), 1 - probabilities.mean(0).amax(-1), atol=1e-5)
    assert torch.allclose(answer.score("variance"), probabilities.var(0, correction=0).sum(-1), atol=1e-5)
    assert torch.allclose(
        answer.score("mutual_information"), CategoricalPrediction(samples).mutual_information, atol=1e-5
    )
    with pytest.raises(
        ValueError, match=r"samples=9, but held-out data were predicted with 5.*calibrate with samples=9"
    ):
        knowing.predict(x, samples=9)


def test_the_distance_is_of_what_enters_the_head_and_tells_far_inputs() -> None:
    model, (x, y) = sharp(ba.Weibull(1.0)), data(400)
    knowing = ba.calibrate(model, data(200, seed=2), samples=3, train=[(x[:250], y[:250]), (x[250:], y[250:])])
    assert knowing.settings.head == "head"
    new = data(50, seed=3)[0]
    answer = knowing.predict(torch.cat([new, new + 30.0]))
    attended = model.eval().attention(new, new, new)[0].mean(1)
    assert knowing.features is not None
    assert torch.allclose(answer.distance[:50], knowing.features.to_classes(attended), rtol=1e-3)
    assert torch.allclose(answer.relative_distance[:50], knowing.features.relative(attended), rtol=1e-2, atol=1e-2)
    assert (answer.outlier[50:] < 0.05).all()
    assert (answer.outlier[:50] < 0.05).float().mean() < 0.2
    assert (answer.outlier_by("energy") > 0).all()


def test_risk_and_coverage_are_kept_on_new_data() -> None:
    knowing = ba.calibrate(sharp(), data(3000))
    x, y = data(6000, seed=5)
    answer = knowing.predict(x)
    given = answer.abstain(risk=0.2)
    wrong = answer.label != y
    assert 0.1 < given.coverage < 0.95  # some are wrong too often, some are not
    assert wrong[given.answered].float().mean() < 0.2
    assert given.answered.float().mean().item() == pytest.approx(given.coverage, abs=0.04)
    assert given.risk < given.bound == 0.2
    for coverage in (0.8, 0.95):
        band = 4 * (coverage * (1 - coverage) * (1 / 3000 + 1 / 6000)) ** 0.5
        held = [answer.sets(coverage, form)[torch.arange(6000), y].float().mean().item() for form in ("lac", "aps")]
        assert held[0] == pytest.approx(coverage, abs=band)
        assert held[1] >= coverage - band
        assert answer.sets(coverage, "aps").any(-1).all()


class Regression(nn.Module):
    """A line, and how far off it is: twice what it says."""

    def __init__(self, says: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.says = says
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Any:
        mean = self.layer(x)
        return mean if self.says == "values" else (mean, 0.1 + x[:, :1].abs().expand_as(mean))


@pytest.mark.parametrize("says", ["values", "gaussian"])
def test_regressions_get_intervals_and_a_tolerance(says: Any) -> None:
    model = Regression(says)

    def examples(n: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, 3)
        return x, model.layer(x).detach() + 2 * (0.1 + x[:, :1].abs()) * torch.randn(n, 2)

    knowing = ba.calibrate(model, examples(2000), train=examples(500), likelihood=says, head="layer")
    x, y = examples(4000)
    answer = knowing.predict(x)
    lower, upper = answer.sets(0.9)
    inside = ((lower <= y) & (y <= upper)).float().mean(0)
    assert torch.allclose(inside, torch.tensor(0.9), atol=4 * (0.09 * (1 / 2000 + 1 / 4000)) ** 0.5)
    assert knowing.temperature.value == pytest.approx(2.0 if says == "gaussian" else 1.0, rel=0.05)
    if says == "gaussian":
        assert (upper - lower)[:, 0].std() > 0.5  # as wide as the example needs
    given = answer.abstain(risk=0.3, tolerance=2.0)
    wrong = ((answer.mean - y).abs() > 2.0).any(1)
    assert 0.1 < given.coverage < 1.0
    assert wrong[given.answered].float().mean() < 0.3
    with pytest.raises(ValueError, match="tolerance= must say"):
        answer.abstain(risk=0.3)
    assert knowing.predict(torch.full((1, 3), 20.0)).outlier.item() < 0.01


def test_one_value_without_a_column_of_its_own() -> None:
    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).squeeze(-1)

    model, x = Line(), torch.randn(200, 3)
    y = model(x).detach() + torch.randn(200)
    knowing = ba.calibrate(model, (x, y), train=(x, y), likelihood="values")
    lower, upper = knowing.predict(x).sets(0.9)
    assert ((lower <= y) & (y <= upper)).float().mean().item() == pytest.approx(181 / 200)  # the rank is ⌈201 · 0.9⌉
    assert knowing.predict(x).distance.shape == (200,)
    x[7] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite outputs for 1 of 200"):
        ba.calibrate(model, (x, y), likelihood="values")


def test_labels_that_may_hold_together() -> None:
    torch.manual_seed(3)
    model = nn.Linear(4, 3)
    x = 2 * torch.randn(1500, 4)
    y = torch.bernoulli((3 * model(x)).sigmoid()).detach()
    knowing = ba.calibrate(model, (x, y), likelihood="bernoulli")
    assert knowing.temperature.value == pytest.approx(1 / 3, rel=0.12)
    answer = knowing.predict(x)
    given = answer.abstain(risk=0.25)
    assert (answer.label != y.bool()).any(1)[given.answered].float().mean() < 0.25
    assert given.coverage > 0.1
    with pytest.raises(ValueError, match="classes of which one holds"):
        answer.sets(0.9)


def test_nothing_to_predict_and_inputs_that_give_nan() -> None:
    x, y = data(200)
    knowing = ba.calibrate(sharp(), (x, y), train=(x, y))
    empty = knowing.predict(x[:0])
    assert empty.outlier.shape == empty.abstain(0.9).answered.shape == (0,)
    assert empty.sets().shape == (0, 3)
    spoilt = knowing.predict(torch.full((2, 5, 8), torch.nan))
    assert (spoilt.outlier == 1 / 201).all()
    assert not spoilt.abstain(0.9).answered.any()
    assert spoilt.sets(0.9).all()


def test_what_cannot_be_fitted_is_refused_in_words(unchecked: None) -> None:
    model, (x, y) = sharp(), data(40)
    nan = x.clone()
    nan[3] = torch.nan
    cases: list[tuple[str, dict[str, Any]]] = [
        ("held_out: the model gives NaN or infinite outputs for 1 of 40", {"held_out": (nan, y)}),
        ("train: the model gives NaN or infinite outputs for 1 of 40", {"train": (nan, y)}),
        ("held_out: label 7 is none of the model's 3 classes", {"held_out": (x, y + 7 - y)}),
        ("held_out: labels of logits .* are whole numbers", {"held_out": (x, y.float())}),
        ("held_out: every label is -100", {"held_out": (x, torch.full_like(y, -100))}),
        ("train holds no example that counts", {"train": (x, torch.full_like(y, -100))}),
        ("held_out: a batch has 40 inputs and 39 labels", {"held_out": (x, y[:39])}),
        ("held_out holds no examples", {"held_out": []}),
        ("head='haed' is not known. Did you mean 'head'", {"train": (x, y), "head": "haed"}),
        ("train= is needed", {"head": "head"}),
    ]
    for words, change in cases:
        with pytest.raises(ValueError, match=words):
            ba.calibrate(model, **{"held_out": (x, y), **change})
    with pytest.raises(TypeError, match=r"held_out must be \(inputs, labels\)"):
        ba.calibrate(model, 3)
    answer = ba.calibrate(model, (x, y)).predict(x)
    for score in ("distance", "mutual_information"):
        with pytest.raises(ValueError, match=rf"no score '{score}', only confidence.*train="):
            answer.outlier_by(score)
    with pytest.raises(ValueError, match="Did you mean 'energy'"):
        answer.score("enrgy")


def test_dropout_may_be_what_is_random() -> None:
    knowing = ba.calibrate(sharp(), data(50), dropout=True, samples=4)
    answer = knowing.predict(data(5)[0])
    assert len(answer.samples) == 4
    assert answer.score("mutual_information").max() > 1e-3


def test_the_point_estimate_of_a_random_model() -> None:
    knowing = ba.calibrate(sharp(ba.Weibull(0.5)), data(50), point_estimate=True)
    x = data(5)[0]
    assert torch.equal(knowing.predict(x).raw[0], knowing.predict(x).raw[0])


def test_threads_do_not_meet() -> None:
    """Each has its own hook on the head: features of one never reach another, and the model is left without hooks."""
    model, (x, y) = sharp(), data(300)
    knowing = ba.calibrate(model, (x, y), train=(x, y))
    expected = knowing.predict(x).distance
    found: dict[int, Tensor] = {}

    def work(number: int) -> None:
        rows = slice(number * 60, number * 60 + 60)
        for _ in range(5):
            found[number] = knowing.predict(x[rows], max_rows=7).distance

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.allclose(torch.cat([found[number] for number in range(5)]), expected, rtol=1e-4)
    assert not model.head._forward_hooks


def test_a_file_brings_everything_back_for_the_same_weights(tmp_path: Path) -> None:
    model, (x, y) = sharp(ba.Weibull(1.0)), data(100)
    knowing = ba.calibrate(model, (x, y), train=(x, y), samples=3)
    assert knowing.save(tmp_path) == tmp_path / "calibration.pt"
    again = ba.load_calibration(sharp(ba.Weibull(1.0)), tmp_path)
    first, second = (each.predict(x, generator=torch.Generator().manual_seed(1)) for each in (knowing, again))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.outlier, second.outlier)
    assert torch.equal(first.sets(0.8), second.sets(0.8))
    assert first.abstain(0.6).threshold == second.abstain(0.6).threshold
    assert str(again) == str(knowing)
    with torch.no_grad():
        model.head.bias.add_(1e-4)
    with pytest.raises(ValueError, match="fitted to other weights"):
        ba.load_calibration(model, tmp_path)
    with pytest.raises(FileNotFoundError, match="is not there"):
        ba.load_calibration(model, tmp_path / "other.pt")
    path = tmp_path / "calibration.pt"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="damaged, or something else"):
        ba.load_calibration(model, path)
    torch.save({"kind": "a model"}, path)
    with pytest.raises(ValueError, match="holds no bayesattn calibration 1 that this version knows"):
        ba.load_calibration(model, path)
