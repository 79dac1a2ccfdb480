"""Weibull weights: the density, the KL, the gradients."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch.distributions import Gamma
from torch.distributions import Weibull as TorchWeibull

import bayesattn as ba
from helpers.monte_carlo import ALLOWED, DRAWS, assert_is_mean, assert_same_mean, many, objective, pathwise_gradient

SCORES = torch.tensor([1.0, -0.5, 9.0, 0.3], dtype=torch.float64)


@pytest.mark.parametrize("k", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("kl_scores", ["normalised", "raw"])
@pytest.mark.parametrize(
    "prior", [ba.GammaPrior(0.5, 2.0), ba.ContextualGamma(0.7, 3), ba.ContextualGamma(0.7, 3, "one")]
)
def test_kl_is_the_expected_log_ratio(k: float, kl_scores: str, prior: ba.GammaPrior | ba.ContextualGamma) -> None:
    posterior = ba.Weibull(k, prior, kl_scores).bind(num_heads=1, head_dim=2)  # pyright: ignore[reportArgumentType]
    keys = torch.randn(1, 1, 4, 2, dtype=torch.float64)
    scores, rows = many(SCORES, DRAWS)
    log_draws = posterior.log_sample(scores, rows)[..., ALLOWED]
    log_mean = SCORES[ALLOWED] - (SCORES[ALLOWED].logsumexp(0) if kl_scores == "normalised" else 0.0)
    shift = log_mean - SCORES[ALLOWED] - math.lgamma(1 + 1 / k)  # the constants that log_sample may leave out
    draws = (log_draws + shift).exp().clamp_min(1e-300)
    alpha = posterior.prior.log_alpha(keys, many(SCORES, 1)[1]).exp()
    alpha = alpha.expand(1, 1, 1, 4)[..., ALLOWED].detach()
    q = TorchWeibull((log_mean - math.lgamma(1 + 1 / k)).exp(), torch.tensor(k, dtype=torch.float64))
    p = Gamma(alpha, torch.tensor(prior.beta, dtype=torch.float64))
    one_scores, one_rows = many(SCORES, 1)
    assert_is_mean(
        (q.log_prob(draws) - p.log_prob(draws)).sum((1, 2, 3)), posterior.kl(one_scores, keys, one_rows).item()
    )


@pytest.mark.parametrize("k", [0.1, 1.0, 10.0, 2000.0])
def test_draws_are_weibull_with_the_mean_of_the_scores(k: float) -> None:
    scores, rows = many(SCORES.float(), 50_000)
    draws = ba.Weibull(k).log_sample(scores, rows)[:, 0, 0, 1].double()
    standard = (draws - SCORES[1]).mul(k).exp()  # (S / lambda)^k ~ Exponential(1)
    assert stats.kstest(standard.numpy(), "expon").pvalue > 1e-3
    if k >= 1:
        assert_is_mean((draws - math.lgamma(1 + 1 / k)).exp(), SCORES[1].exp())


@pytest.mark.parametrize("k", [1.0, 5.0])
def test_pathwise_gradient_agrees_with_the_score_function_estimator(k: float) -> None:
    scores, rows = many(SCORES, DRAWS)
    scores = scores.clone().requires_grad_()
    log_draws = ba.Weibull(k).log_sample(scores, rows)
    pathwise = pathwise_gradient(log_draws, rows, scores)[..., ALLOWED]
    with torch.no_grad():
        score_function = k * (((log_draws - scores) * k).exp() - 1.0)  # d log q / d scores
        values = objective(rows.softmax(log_draws)).unsqueeze(-1)
        other = ((values - values.mean()) * score_function)[..., ALLOWED]
    assert_same_mean(pathwise, other)


def test_expected_weights_are_not_softmax() -> None:
    """E[S] is matched, E[W] is not: exact for k = 1 (∫ λ_0/(1+tλ_0)² Π 1/(1+tλ_j) dt), from the sheet for k = 5."""
    scores = torch.tensor([2.0, 0.0, 0.0, -1.0], dtype=torch.float64)
    for k, expected in ((1.0, (0.74066, 0.18163, 0.07771)), (5.0, (0.838, 0.119, 0.044))):
        copies, rows = many(scores, DRAWS)
        weights = rows.softmax(ba.Weibull(k).log_sample(copies, rows))[..., ALLOWED].mean((0, 1, 2))
        assert torch.allclose(weights, torch.tensor(expected, dtype=torch.float64), atol=1e-3)


def test_raw_scores_pin_the_scale_and_normalised_ones_do_not() -> None:
    keys = torch.zeros(1, 1, 4, 2, dtype=torch.float64)
    one, rows = many(SCORES, 1)
    shifted, _ = many(SCORES + 3.0, 1)
    normalised, raw = ba.Weibull(2.0), ba.Weibull(2.0, kl_scores="raw")
    assert torch.allclose(normalised.kl(one, keys, rows), normalised.kl(shifted, keys, rows))
    scores = one.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(raw.kl(scores, keys, rows).sum(), scores)
    assert torch.allclose(gradient[..., ALLOWED], scores[..., ALLOWED].exp() - 1.0)  # beta exp(scores) - alpha


def test_the_kl_trains_the_contextual_prior() -> None:
    """The released code detaches the KL, so that its prior network never learns."""
    posterior = ba.Weibull(5.0, ba.ContextualGamma(0.5, 4)).bind(num_heads=2, head_dim=3)
    q = torch.randn(2, 2, 4, 3)
    with ba.record() as latents:
        ba.attend(q, q, q, posterior)
    latents.local_kl.sum().backward()
    gradients = {name: parameter.grad for name, parameter in posterior.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    # the last bias shifts all keys alike and cancels in the softmax over keys
    assert {name for name, g in gradients.items() if g is not None and g.abs().max() > 1e-6} >= {
        "prior.network.inner.weight",
        "prior.network.inner.bias",
        "prior.network.outer.weight",
    }


@pytest.mark.parametrize("k", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bad_shape_is_refused(k: float) -> None:
    with pytest.raises(ValueError, match=r"k must be a finite number above 0, got .*large values mean little noise"):
        ba.Weibull(k)
