"""Draws from a mixture: their laws, at every size of pseudo-count."""

from __future__ import annotations

import math

import pytest
import torch

from bayesattn.nvib import Mixture
from helpers.monte_carlo import assert_is_mean

DRAWS = 100_000
ALPHA = torch.tensor([1.0, 0.3, 2.2])


def many(log_alpha: torch.Tensor, dim: int = 1) -> Mixture:
    """[draws, components] copies."""
    shape = (DRAWS, len(log_alpha), dim)
    mask = torch.ones(shape[:2], dtype=torch.bool)
    mean = torch.arange(float(len(log_alpha)))[:, None].expand(shape)
    return Mixture(mean, torch.full(shape, math.log(0.25)), log_alpha.expand(shape[:2]), mask)


@pytest.mark.parametrize("kappa", [1, 2])
def test_weights_are_dirichlet_and_points_gaussian(kappa: int) -> None:
    drawn = many(ALPHA.log()).sample(kappa)
    assert drawn.log_variance is None
    weights = drawn.weights
    each = (ALPHA / kappa).repeat_interleave(kappa)
    total = ALPHA.sum()
    assert_is_mean(weights, each / total)
    assert_is_mean(weights.square(), each * (each + 1) / (total * (total + 1)))
    assert_is_mean(weights[:, 0] * weights[:, -1], each[0] * each[-1] / (total * (total + 1)))
    centred = drawn.mean.squeeze(-1) - torch.arange(3.0).repeat_interleave(kappa)
    assert_is_mean(centred, 0.0)
    assert_is_mean(centred.square(), 0.25)


@pytest.mark.parametrize("log_alpha", [15.9, 16.1, 60.0, 2000.0])
def test_large_pseudo_counts_keep_their_spread(log_alpha: float) -> None:
    """log Gamma(α) has mean log α - 1/2α and standard deviation 1 / sqrt(α), on both sides of the change of formula."""
    location = torch.full((1,), log_alpha, dtype=torch.float64)
    mixture = many(location)
    log_gamma = Mixture(mixture.mean, None, mixture.log_weight, mixture.mask).sample().log_weight - log_alpha
    scale = math.exp(-0.5 * log_alpha)
    assert_is_mean(log_gamma, 0.0)
    assert log_gamma.std().item() == pytest.approx(scale, rel=0.02, abs=1e-300)


def test_the_gradient_of_a_large_draw_is_that_of_the_pseudo_count() -> None:
    for log_alpha in (15.0, 17.0, 500.0):
        location = torch.full((1, 50), log_alpha, requires_grad=True)
        Mixture(torch.zeros(1, 50, 1), None, location, torch.ones(1, 50).bool()).sample().log_weight.sum().backward()
        assert location.grad is not None
        assert torch.allclose(location.grad, torch.ones(1, 50), atol=5e-3)


def test_weights_of_zero_and_padding() -> None:
    mixture = Mixture(
        torch.zeros(1, 4, 2),
        torch.zeros(1, 4, 2),
        torch.tensor([[0.0, -math.inf, 1.0, 2.0]]),
        torch.tensor([[True, True, True, False]]),
    )
    for latent in (mixture, mixture.sample()):
        assert latent.kept.tolist() == [[True, False, True, False]]
        assert (latent.weights[0, [1, 3]] == 0).all()
        assert latent.weights.sum().item() == pytest.approx(1.0)


def test_the_generator_decides() -> None:
    mixture = many(ALPHA.log())
    one, two, three = (mixture.sample(generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.mean, two.mean)
    assert torch.equal(one.log_weight, two.log_weight)
    assert not torch.equal(one.log_weight, three.log_weight)


def test_points_and_gaussians_do_not_mix() -> None:
    mixture = many(ALPHA.log())
    with pytest.raises(ValueError, match="in one mode"):
        mixture.append(mixture.sample())
