"""What networks drawn from a prior predict."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import bayesattn as ba
import bayesattn_command
from bayesattn.experiments.analysis.prior_predictive import (
    DirichletPrior,
    draw_from_prior,
    draw_networks,
    entropies,
    over_scales,
    prior_predictive,
)
from bayesattn.experiments.commands.prior import ATTENTIONS, IMPROVED, PLAIN, attention_priors
from bayesattn.experiments.models.vit import ViT
from bayesattn.weight_space import WeightPrior
from bayesattn.weight_space.families import FAMILIES


def test_weights_are_drawn_from_the_prior_and_put_back() -> None:
    """Outputs of a linear model on one-hot inputs are the weights."""
    model = nn.Linear(4, 3, bias=False)
    before = model.weight.detach().clone()
    outputs = draw_from_prior(model, torch.eye(4), WeightPrior("laplace", 0.5), samples=2000)
    assert outputs.abs().mean().item() == pytest.approx(0.5, rel=0.03)
    assert torch.equal(model.weight, before)


def test_a_wide_prior_is_sure_of_everything_and_a_narrow_one_of_nothing() -> None:
    torch.manual_seed(0)
    model = ViT(4, 2, 5, dim=8, feedforward=8).eval()
    images = torch.randn(6, 1, 4, 4)
    found = over_scales(model, images, ["gaussian", "student"], [1e-3, 5.0], samples=40)
    for narrow, wide in found.values():
        assert narrow.expected_entropy == pytest.approx(math.log(5), abs=1e-3)
        assert wide.expected_entropy < 0.3
        assert wide.entropy > 1.0  # drawn networks disagree


def test_entropies_by_hand() -> None:
    sure = torch.tensor([[[50.0, 0.0]], [[0.0, 50.0]]])
    found = prior_predictive(sure)
    assert found.entropy == pytest.approx(math.log(2), abs=1e-5)
    assert found.expected_entropy == pytest.approx(0.0, abs=1e-5)


def test_layer_norms_keep_their_weights() -> None:
    model = nn.Sequential(nn.LayerNorm(3))
    outputs = draw_from_prior(model, torch.randn(2, 3), WeightPrior(), samples=3)
    assert torch.equal(outputs[0], outputs[2])


def test_the_posteriors_of_attention_stay_as_they_start_and_draw() -> None:
    """Keys of 0 make every score 0: what differs between networks with the same weights is the drawn attention."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
    model = ba.convert(encoder, ba.Weibull(k=1.0, prior=ba.ContextualGamma(0.01))).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    outputs = draw_from_prior(model, torch.randn(2, 5, 8), WeightPrior(), samples=2, where="linear1")
    assert not torch.equal(outputs[0], outputs[1])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    seen: list[str] = []
    prior = {"*posterior*": _Refuses(seen), "*": WeightPrior()}
    draw_from_prior(model, torch.randn(2, 5, 8), prior, samples=1)
    assert seen == []


class _Refuses(WeightPrior):
    def __init__(self, seen: list[str]):
        super().__init__()
        self.seen = seen

    def sample(self, like: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        self.seen.append(str(tuple(like.shape)))
        return super().sample(like, generator)


def test_padding_does_not_count() -> None:
    logits = torch.tensor([[[[50.0, 0.0], [0.0, 0.0]]]])
    found = prior_predictive(logits, torch.tensor([[True, False]]))
    assert found.entropy == pytest.approx(0.0, abs=1e-5)


def test_attention_is_drawn_from_its_prior_and_not_from_the_posterior_as_it_starts() -> None:
    """Weights of a sharp row: a Gaussian prior is centred on the logits, a Dirichlet prior does not see them."""
    scores = torch.tensor([6.0, 0.0, 0.0]).expand(1, 1, 4000, 3)
    queries = torch.ones(1, 1, 4000, 1)
    keys = scores[0, 0, 0].view(1, 1, 3, 1)
    values = torch.eye(3).view(1, 1, 3, 3)
    drawn = {}
    torch.manual_seed(0)
    for name, posterior in attention_priors().items():
        bound = posterior.bind(num_heads=1, head_dim=1)
        with torch.no_grad(), ba.sampling():
            drawn[name] = ba.attend(queries, keys, values, bound)[0, 0]
    gaussian, approximate, dirichlet = (drawn[name] for name in ATTENTIONS)
    logits = (gaussian[:, 0].log() - gaussian[:, 1].log()).double()
    assert logits.mean().item() == pytest.approx(6, abs=0.1)
    assert logits.std().item() == pytest.approx(2**0.5, rel=0.05), "two logits, each with the prior's scale of 1"
    alpha = 3 * [0.99]
    exact = torch.distributions.Dirichlet(torch.tensor(alpha))
    assert dirichlet.mean(0).tolist() == pytest.approx(exact.mean.tolist(), abs=0.02)
    assert dirichlet.var(0).tolist() == pytest.approx(exact.variance.tolist(), rel=0.07)
    assert approximate.mean(0).tolist() == pytest.approx([1 / 3] * 3, abs=0.02)


def test_networks_as_they_start_differ_and_the_generator_stays() -> None:
    state = torch.get_rng_state()
    outputs = draw_networks(lambda: nn.Linear(4, 3), torch.eye(4), samples=500)
    assert torch.equal(torch.get_rng_state(), state)
    assert outputs[:, 0].std().item() == pytest.approx(
        (0.5**2 / 3 + 0.5**2 / 3) ** 0.5, rel=0.05
    )  # weight and bias, U(-1/2, 1/2)
    torch.testing.assert_close(outputs, draw_networks(lambda: nn.Linear(4, 3), torch.eye(4), samples=500))


def test_a_prediction_is_of_several_networks() -> None:
    sure = torch.tensor([[50.0, 0.0], [0.0, 50.0], [50.0, 0.0], [50.0, 0.0]]).unsqueeze(1)
    found = entropies(sure, together=2)
    assert found.predictive.tolist() == pytest.approx([math.log(2), 0.0], abs=1e-5)
    assert found.single.tolist() == pytest.approx([0.0] * 4, abs=1e-5)
    with pytest.raises(ValueError, match="4 networks cannot be divided among predictions of together=3"):
        entropies(sure, together=3)


def test_the_prior_of_dirichlet_attention_has_no_kl_to_itself() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
    model = ba.convert(encoder, DirichletPrior(0.99))
    with ba.record() as latents:
        model(torch.randn(2, 5, 8))
    assert latents.local_kl.eq(0).all()


@pytest.mark.slow
def test_the_command_writes_histograms_of_every_prior_and_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prior", "digits", "--scales", "0.001", "3", "--predictions", "1", "--inputs", "5", "--output"]
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["bayesattn", *arguments, str(tmp_path)])
    bayesattn_command.main()
    assert "Dirichlet attention" in capsys.readouterr().out
    data = json.loads((tmp_path / "prior.json").read_text())
    assert set(data["curves"]) == set(FAMILIES)
    for narrow, wide in data["curves"].values():
        assert narrow["expected_entropy"] == pytest.approx(math.log(10), abs=0.05)  # the Cauchy has wide tails
        assert wide["expected_entropy"] < narrow["expected_entropy"] / 2
    for kind, per_input in (("predictive", 1), ("single", data["together"])):
        assert set(data["histograms"][kind]) - {IMPROVED} == {*FAMILIES, PLAIN, *ATTENTIONS}
        assert all(sum(each["counts"]) == 5 * per_input for each in data["histograms"][kind].values())
    assert (
        data["histograms"]["single"]["Dirichlet attention"]["mean"] > data["histograms"]["single"]["gaussian"]["mean"]
    )
    for name in ("prior.png", "prior_entropies.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    monkeypatch.setattr(sys, "argv", ["bayesattn", "prior", "toy-m1"])
    with pytest.raises(SystemExit, match="toy-m1 has none: take mnist or pos"):
        bayesattn_command.main()
