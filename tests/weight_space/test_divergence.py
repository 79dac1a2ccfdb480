"""KL of weights: closed forms against Monte Carlo, Monte Carlo against numerical integration."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy import integrate

from bayesattn.weight_space.divergence import _CLOSED, is_closed, kl_to_prior
from bayesattn.weight_space.families import FAMILIES
from bayesattn.weight_space.priors import WeightPrior

LOCATION = torch.tensor([0.3, -1.2, 0.0, 2.5], dtype=torch.float64)
SCALE = torch.tensor([0.8, 0.05, 1.5, 0.4], dtype=torch.float64)
DF = torch.tensor([3.5, 8.0, 5.0, 30.0], dtype=torch.float64)
INFINITE = [("cauchy", prior) for prior in ("gaussian", "laplace", "logistic")]
"""A Cauchy variable has no E|w|, which these priors' log densities need."""
PAIRS = list(itertools.product(FAMILIES, FAMILIES))


def prior_of(name: str, scale: float = 0.7) -> WeightPrior:
    return WeightPrior(name, scale, 4.0 if name == "student" else None)


def draws_of(name: str, count: int) -> torch.Tensor:
    like = torch.empty(count, 4, dtype=torch.float64)
    return LOCATION + SCALE * FAMILIES[name].noise(like, DF, torch.Generator().manual_seed(1))


def kl_of_draws(name: str, prior: WeightPrior, draws: torch.Tensor) -> torch.Tensor:
    """log q - log p of every draw, summed over the weights."""
    log_q = FAMILIES[name].log_density((draws - LOCATION) / SCALE, DF) - SCALE.log()
    return (log_q - prior.log_density(draws)).sum(1)


@pytest.mark.parametrize("pair", sorted(_CLOSED))
def test_closed_forms_agree_with_monte_carlo(pair: tuple[str, str]) -> None:
    family, prior = pair[0], prior_of(pair[1])
    sampled = kl_of_draws(family, prior, draws_of(family, 400_000))
    closed = kl_to_prior(FAMILIES[family], LOCATION, SCALE, DF, prior, []).item()
    assert abs(closed - sampled.mean().item()) < 4 * sampled.std().item() / 400_000**0.5


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair not in _CLOSED and pair not in INFINITE])
def test_estimates_agree_with_numerical_integration(pair: tuple[str, str]) -> None:
    """Of the first weight alone: -log p under q by quadrature, the entropy in closed form."""
    family, prior = FAMILIES[pair[0]], prior_of(pair[1])
    location, scale, df = LOCATION[:1], SCALE[:1], DF[:1]

    def integrand(z: float) -> float:
        point = torch.tensor([z], dtype=torch.float64)
        return float(-family.log_density(point, df).exp() * prior.log_density(location + scale * point))

    crossed, _ = integrate.quad(integrand, -float("inf"), float("inf"), limit=200)
    expected = crossed - float(family.entropy(df)) - float(scale.log())
    noise = family.noise(torch.empty(400_000, 1, dtype=torch.float64), df, torch.Generator().manual_seed(2))
    draws = location + scale * noise
    each = -prior.log_density(draws).squeeze(1)
    found = kl_to_prior(family, location, scale, df, prior, [draws]).item()
    # one "draw" of many weights is their sum: bring it back to one
    found = (
        (found + float(family.entropy(df)) + float(scale.log())) / 400_000
        - float(family.entropy(df))
        - float(scale.log())
    )
    assert abs(found - expected) < 4.5 * each.std().item() / 400_000**0.5 + 1e-6


@pytest.mark.parametrize("name", ["gaussian", "laplace", "cauchy"])
def test_the_kl_of_a_prior_to_itself_is_zero_and_stationary(name: str) -> None:
    scale = torch.full((3,), 0.7, dtype=torch.float64, requires_grad=True)
    location = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    kl = kl_to_prior(FAMILIES[name], location, scale, None, prior_of(name), [])
    assert kl.item() == pytest.approx(0.0, abs=1e-12)
    kl.backward()
    assert scale.grad is not None
    torch.testing.assert_close(scale.grad, torch.zeros_like(scale), atol=1e-12, rtol=0)


def test_the_sheets_figure() -> None:
    """KL(N(0.3, 0.8²) ‖ N(0, 0.5²)) by hand."""
    found = kl_to_prior(FAMILIES["gaussian"], LOCATION[:1], SCALE[:1], None, WeightPrior("gaussian", 0.5), [])
    assert found.item() == pytest.approx(0.5 * ((0.64 + 0.09) / 0.25 + 2 * torch.tensor(0.5 / 0.8).log().item() - 1))


def test_which_pairs_are_closed() -> None:
    assert is_closed(FAMILIES["student"], WeightPrior("gaussian"))
    assert not is_closed(FAMILIES["gaussian"], prior_of("student"))
    assert not any(is_closed(FAMILIES[family], prior_of(prior)) for family, prior in INFINITE)
