"""The maths that torch.distributions lacks, against Monte Carlo, exact values and distribution functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor
from torch.distributions import Gamma, Weibull, kl_divergence

import bayesattn as ba
from bayesattn.numerics import draws as ours
from bayesattn.numerics.formulas import exp_with_linear_tail, gamma_kl, square_with_linear_tail
from bayesattn.posteriors.rows import DenseRows

DRAWS = 1_000_000


def within(estimate: Tensor, exact: float, errors: float = 4.0) -> bool:
    """Whether the mean of the draws is within that many standard errors of the exact value."""
    error = estimate.std() / math.sqrt(estimate.numel())
    return abs(estimate.mean().item() - exact) <= errors * error.item() + 1e-12


@pytest.mark.parametrize("k", [0.5, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (2.0, 3.0), (0.1, 5.0), (1e-4, 1e-2)])
def test_weibull_gamma_kl_is_the_kl(k: float, alpha: float, beta: float) -> None:
    scale = 0.5
    weibull = Weibull(torch.tensor(scale, dtype=torch.float64), torch.tensor(k, dtype=torch.float64))
    gamma = Gamma(torch.tensor(alpha, dtype=torch.float64), torch.tensor(beta, dtype=torch.float64))
    draws = weibull.sample((DRAWS,)).clamp_min(1e-300)
    exact = kl_divergence(weibull, gamma).item()
    assert within(weibull.log_prob(draws) - gamma.log_prob(draws), exact)
    log_mean = torch.tensor(math.log(scale) + math.lgamma(1 + 1 / k), dtype=torch.float64)
    posterior = ba.Weibull(k, ba.GammaPrior(alpha, beta), kl_scores="raw")
    one_pair = log_mean.view(1, 1, 1, 1)
    same = posterior.kl(one_pair, one_pair, DenseRows((1, 1, 1, 1)))
    assert same.item() == pytest.approx(exact, rel=1e-9)


def test_weibull_gamma_kl_is_the_sheets_value_and_zero_where_the_two_are_equal() -> None:
    def kl(k: float, scale: float, alpha: float, beta: float) -> float:
        return kl_divergence(
            Weibull(torch.tensor(scale), torch.tensor(k)), Gamma(torch.tensor(alpha), torch.tensor(beta))
        ).item()

    assert kl(10.0, 0.5, 2.0, 3.0) == pytest.approx(1.45691, abs=1e-4)
    assert kl(1.0, 1.0, 1.0, 1.0) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("q", [1e-3, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("p", [0.01, 0.99, 4.0])
def test_gamma_kl_is_the_kl(q: float, p: float) -> None:
    one = torch.tensor(1.0, dtype=torch.float64)
    log_q, log_p = torch.tensor([q, p], dtype=torch.float64).log()
    log_draws = ours.log_gamma_rsample(log_q.expand(DRAWS))
    ratio = _log_gamma_density(log_draws, q) - _log_gamma_density(log_draws, p)
    exact = gamma_kl(log_q, log_p).item()
    assert within(ratio, exact)
    assert exact == pytest.approx(kl_divergence(Gamma(one * q, one), Gamma(one * p, one)).item(), rel=1e-9)


def _log_gamma_density(log_x: Tensor, a: float) -> Tensor:
    """log density of X ~ Gamma(a), as a density of log X, so that X itself may underflow."""
    return a * log_x - log_x.exp() - math.lgamma(a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("a", [1e-6, 1e-3, 0.1, 0.63, 1.0, 10.0, 1000.0])
def test_log_gamma_draws_have_their_distribution(a: float, dtype: torch.dtype) -> None:
    log_a = torch.full((50_000,), math.log(a), dtype=dtype)
    draws = ours.log_gamma_rsample(log_a).double().numpy()

    def distribution_function(log_x: np.ndarray) -> np.ndarray:
        # for small x, gammainc(a, x) = x^a / Gamma(a + 1) to double precision, and exp(log_x) may underflow
        small = np.exp(a * np.minimum(log_x, -40.0) - math.lgamma(a + 1))
        return np.where(log_x < -40.0, small, special.gammainc(a, np.exp(np.maximum(log_x, -40.0))))

    assert stats.kstest(draws, distribution_function).pvalue > 1e-3


@pytest.mark.parametrize("a", [1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0])
def test_log_gamma_gradient_is_the_gradient_of_the_expectation(a: float) -> None:
    """E[log X] = psi(a), so d/dlog a E[log X] = a psi'(a)."""
    log_a = torch.full((400_000,), math.log(a), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ours.log_gamma_rsample(log_a).sum(), log_a)
    assert within(gradient, a * special.polygamma(1, a).item())


@pytest.mark.parametrize("a", [0.1, 1.0, 10.0])
def test_log_gamma_gradient_of_the_mean(a: float) -> None:
    """E[X] = a, so d/dlog a E[X] = a."""
    log_a = torch.full((400_000,), math.log(a), requires_grad=True)
    (gradient,) = torch.autograd.grad(ours.log_gamma_rsample(log_a).exp().sum(), log_a)
    assert within(gradient, a)


@pytest.mark.parametrize("a", [1e-20, 1e-30, 1e-300])
def test_log_gamma_draws_are_finite_however_small_the_concentration(a: float) -> None:
    log_a = torch.full((10_000,), math.log(a), requires_grad=True)
    draws = ours.log_gamma_rsample(log_a)
    draws.sum().backward()
    assert draws.isfinite().all()
    assert draws.unique().numel() > 9_000, "the draws tie, as torch's float32 Gamma draws do"
    assert log_a.grad is not None
    assert log_a.grad.isfinite().all()


@pytest.mark.parametrize(("a", "shares"), [(1.0, 0.108), (3.0, 0.036), (10.0, 0.0056)])
def test_approximate_draws_have_the_variance_that_the_sheet_measured(a: float, shares: float) -> None:
    """The inverse-CDF approximation of Joo et al. is far too narrow for large concentrations; its bias is the thesis's."""
    log_a = (torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64) * a).log().expand(400_000, 3)
    weights = ours.approximate_log_gamma_rsample(log_a).softmax(-1)
    assert weights[:, 0].var().item() == pytest.approx(shares, rel=0.03)


def test_approximate_draws_are_the_formula() -> None:
    """X = (u a Gamma(a))^(1/a), here for its quantiles."""
    a = 0.4
    draws = ours.approximate_log_gamma_rsample(torch.full((50_000,), math.log(a), dtype=torch.float64)).numpy()
    assert stats.kstest(draws, lambda log_x: np.exp(a * log_x - math.log(a) - math.lgamma(a))).pvalue > 1e-3


def test_log_exponential_draws_have_their_distribution() -> None:
    draws = ours.log_exponential(torch.empty(50_000)).exp().numpy()
    assert stats.kstest(draws, "expon").pvalue > 1e-3


@pytest.mark.parametrize("x", [-100.0, 0.0, 59.9])
def test_exp_with_linear_tail_is_exp_below_its_limit(x: float) -> None:
    assert exp_with_linear_tail(torch.tensor(x, dtype=torch.float64)).item() == pytest.approx(math.exp(x))


def test_linear_tails_are_finite_smooth_and_restoring() -> None:
    for function, limit in ((exp_with_linear_tail, 60.0), (square_with_linear_tail, 1e15)):
        x = torch.tensor([limit * 0.999999, limit * 1.000001, 1e4 * limit], requires_grad=True)
        values = function(x)
        (slopes,) = torch.autograd.grad(values.sum(), x)
        assert values.isfinite().all()
        assert (values.diff() > 0).all()
        assert slopes.isfinite().all()
        assert slopes[0].item() == pytest.approx(slopes[1].item(), rel=1e-3)
        assert (slopes > 0).all()


def test_square_with_linear_tail_is_the_square() -> None:
    x = torch.tensor([-3.0, 0.0, 2.5])
    assert torch.equal(square_with_linear_tail(x), x.square())
