"""What networks drawn from a prior predict."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bayesattn.analysis.prior_predictive import draw_from_prior, over_scales, prior_predictive
from bayesattn.models.vit import ViT
from bayesattn.weights import WeightPrior


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
