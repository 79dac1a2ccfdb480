"""Lognormal weights: the density, the KL, the gradients."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch.distributions import Normal

import bayesattn as ba
from helpers.monte_carlo import ALLOWED, DRAWS, assert_is_mean, assert_same_mean, many, objective, pathwise_gradient

SCORES = torch.tensor([1.0, -0.5, 9.0, 0.3], dtype=torch.float64)


@pytest.mark.parametrize("sigma", [0.1, 0.8, 2.0])
@pytest.mark.parametrize("kl_scores", ["normalised", "raw"])
@pytest.mark.parametrize(
    "prior",
    [
        ba.LogNormalPrior(),
        ba.LogNormalPrior(-0.5, 3.0),
        ba.LogNormalPrior(-0.5, 3.0, learnable=True),
        ba.ContextualLogNormal(1.5, 3),
        ba.ContextualLogNormal(1.5, 3, "share"),
    ],
)
def test_kl_is_the_expected_log_ratio(
    sigma: float, kl_scores: str, prior: ba.LogNormalPrior | ba.ContextualLogNormal
) -> None:
    posterior = ba.LogNormal(sigma, prior, kl_scores).bind(num_heads=1, head_dim=2)  # pyright: ignore[reportArgumentType]
    keys = torch.randn(1, 1, 4, 2, dtype=torch.float64)
    scores, rows = many(SCORES, DRAWS)
    log_mean = SCORES[ALLOWED] - (SCORES[ALLOWED].logsumexp(0) if kl_scores == "normalised" else 0.0)
    location = log_mean - sigma**2 / 2
    # log_sample may leave out a constant for each row: put it back
    draws = posterior.log_sample(scores, rows)[..., ALLOWED] - SCORES[ALLOWED] + location
    one_scores, one_rows = many(SCORES, 1)
    prior_location = posterior.prior.log_location(keys, one_rows).expand(1, 1, 1, 4)[..., ALLOWED].detach()
    prior_sigma = prior.sigma or max(1.0, sigma)
    ratio = Normal(location, sigma).log_prob(draws) - Normal(prior_location, prior_sigma).log_prob(draws)
    assert_is_mean(ratio.sum((1, 2, 3)), posterior.kl(one_scores, keys, one_rows).item())


def test_kl_is_the_sheets_formula_and_zero_where_the_two_are_equal() -> None:
    """KL(LogN(m1, s1²) ‖ LogN(m2, s2²)) = 0 for m1 = m2, s1 = s2."""
    sigma = 0.7
    posterior = ba.LogNormal(sigma, ba.LogNormalPrior(-(sigma**2) / 2, sigma), "raw")
    one, rows = many(torch.zeros(4, dtype=torch.float64), 1)
    assert posterior.kl(one, torch.zeros(1, 1, 4, 2, dtype=torch.float64), rows).item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("sigma", [1e-6, 0.3, 10.0, 1e15])
def test_draws_are_normal_in_logarithms(sigma: float) -> None:
    scores, rows = many(torch.zeros(4), 50_000)
    draws = ba.LogNormal(sigma).log_sample(scores, rows)[:, 0, 0, 1].double() / sigma
    assert stats.kstest(draws.numpy(), "norm").pvalue > 1e-3


def test_pathwise_gradient_agrees_with_the_score_function_estimator() -> None:
    sigma = 0.8
    scores, rows = many(SCORES, DRAWS)
    scores = scores.clone().requires_grad_()
    log_draws = ba.LogNormal(sigma).log_sample(scores, rows)
    pathwise = pathwise_gradient(log_draws, rows, scores)[..., ALLOWED]
    with torch.no_grad():
        values = objective(rows.softmax(log_draws)).unsqueeze(-1)
        other = ((values - values.mean()) * (log_draws - scores) / sigma**2)[..., ALLOWED]
    assert_same_mean(pathwise, other)


def test_expected_weights_are_the_sheets() -> None:
    scores = torch.tensor([2.0, 0.0, 0.0, -1.0], dtype=torch.float64)
    copies, rows = many(scores, DRAWS)
    weights = rows.softmax(ba.LogNormal(1.0).log_sample(copies, rows))[..., ALLOWED].mean((0, 1, 2))
    assert torch.allclose(weights, torch.tensor([0.762, 0.168, 0.070], dtype=torch.float64), atol=1e-3)


def test_bad_hyper_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="sigma must be a finite number above 0, got -1"):
        ba.LogNormal(-1.0)
    with pytest.raises(ValueError, match="beyond float32: choose a prior sigma of at least 1e"):
        ba.LogNormal(1e15, ba.LogNormalPrior(sigma=1e-15))
    with pytest.raises(ValueError, match="needs sigma="):
        ba.LogNormalPrior(learnable=True)
