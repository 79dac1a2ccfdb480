"""Gamma draws from a counter: their law, on every backend, and how they move with their concentration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

import bayesattn as ba
from bayesattn.kernels import native
from bayesattn.numerics import counter_gamma
from bayesattn.numerics.counter_noise import CounterNoise
from helpers import gamma_fit

NATIVE = pytest.mark.skipif(native.library().functions is None, reason="no compiler")
GENERATORS = ("philox", "hash")


def noise(seed: int, generator: str = "philox", **start: int) -> CounterNoise:
    return CounterNoise(torch.tensor([seed]), generator, **start)  # pyright: ignore[reportArgumentType]


def logs(concentration: float, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full(shape or (2, 3, 40, 150), math.log(concentration), dtype=dtype)


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("concentration", [0.05, 0.5, 1.0, 4.0, 300.0])
def test_draws_follow_the_law(concentration: float, generator: str) -> None:
    draws, _ = counter_gamma.draw(noise(1, generator), logs(concentration))
    assert stats.kstest(draws.exp().flatten().numpy(), "gamma", args=(concentration,)).pvalue > 1e-3


def test_tiny_concentrations_have_the_logarithms_they_should() -> None:
    """As a → 0, -a log X is Exponential(1)."""
    for concentration in (1e-4, 1e-15):
        draws, _ = counter_gamma.draw(noise(2), logs(concentration, dtype=torch.float32))
        assert stats.kstest((-concentration * draws).flatten().numpy(), "expon").pvalue > 1e-3


@pytest.mark.parametrize("backend", ["reference", "chunked", pytest.param("native", marks=NATIVE)])
@pytest.mark.parametrize("sharpness", [0.3, 2.0, 40.0])
def test_two_keys_share_a_beta_distribution(backend: Any, sharpness: float) -> None:
    posterior = ba.Dirichlet(initial_sharpness=sharpness).bind(num_heads=1, head_dim=2)
    assert posterior.sharpness is not None
    exact = float(posterior.sharpness.values(torch.zeros(1)).detach())  # pyright: ignore[reportCallIssue]
    # two keys in different places of the block, the rest masked; their scores give them a quarter and three quarters
    query, key = torch.ones(1, 1, 20_000, 2), torch.zeros(1, 1, 70, 2)
    key[0, 0, 67] = math.log(3.0)
    allowed = torch.zeros(1, 1, 1, 70, dtype=torch.bool)
    allowed[..., 5] = allowed[..., 67] = True
    value = torch.zeros(1, 1, 70, 2)
    value[0, 0, 5, 0] = value[0, 0, 67, 1] = 1.0
    with torch.no_grad():
        weights = ba.attend(query, key, value, posterior, allowed, scale=0.5, backend=backend)[0, 0]
    assert isinstance(weights, Tensor)
    assert torch.allclose(weights.sum(-1), torch.ones(20_000), atol=1e-5)
    assert stats.kstest(weights[:, 0].double().numpy(), "beta", args=(exact / 4, exact * 3 / 4)).pvalue > 1e-3


def quantile_slope(concentration: float, draws: np.ndarray) -> np.ndarray:
    """d log x / d concentration at a fixed value of the distribution function, by differences of quantiles."""
    step = 2e-3 * math.sqrt(concentration)
    below, above = special.gammainc(concentration, draws), special.gammaincc(concentration, draws)
    lower = below < 0.5

    def log_quantile(at: float) -> np.ndarray:
        of_lower = special.gammaincinv(at, np.where(lower, below, 0.5))
        return np.log(np.where(lower, of_lower, special.gammainccinv(at, np.where(lower, 0.5, above))))

    one = log_quantile(concentration + step) - log_quantile(concentration - step)
    two = log_quantile(concentration + 2 * step) - log_quantile(concentration - 2 * step)
    return (8.0 * one - two) / (12.0 * step)


@pytest.mark.parametrize("concentration", [1e-6, 0.05, 0.6, 1.0, 2.7, 11.0, 150.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_slope_is_that_of_the_quantiles(concentration: float, dtype: torch.dtype) -> None:
    a = torch.full((1, 1, 50, 200), concentration, dtype=torch.float64)
    root = counter_gamma._boosted_root(noise(3), a)
    log_boosted = (a + 2.0 / 3.0).log() + 3.0 * root.log()
    found = counter_gamma.log_slope(a.to(dtype), root.to(dtype), log_boosted.to(dtype)).double()
    expected = torch.from_numpy(quantile_slope(concentration + 1.0, log_boosted.exp().numpy()))
    assert (found / expected - 1.0).abs().max() < 1e-5


def test_the_correction_is_its_fit() -> None:
    a, v, _ = gamma_fit.samples()
    ours, anew = (
        gamma_fit.polynomial(a, v, np.array(values)) for values in (counter_gamma.CORRECTION, gamma_fit.fitted())
    )
    assert np.abs(ours - anew).max() < 1e-7


def test_the_gradient_of_a_mean_is_that_of_the_law() -> None:
    """E[log X] = psi(a), so that the gradients by log a have the mean a psi'(a)."""
    log_a = logs(0.8).requires_grad_()
    draws = counter_gamma.log_gamma(noise(4), log_a)
    (gradient,) = torch.autograd.grad(draws.sum(), log_a)
    for found, expected in (
        (draws.detach(), float(special.digamma(0.8))),
        (gradient, 0.8 * float(special.polygamma(1, 0.8))),
    ):
        assert abs(float(found.mean()) - expected) < 4 * float(found.std()) / math.sqrt(found.numel())


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_part_is_a_part_of_the_whole(generator: str) -> None:
    """Also where draws were rejected, which are made again one by one."""
    log_a = torch.randn(3, 2, 30, 70, dtype=torch.float64)
    whole = counter_gamma.draw(noise(6, generator), log_a)
    part = counter_gamma.draw(noise(6, generator, first_query=4, first_example=1, first_head=1), log_a[1:, 1:, 4:, :30])
    for one, other in zip(part, whole, strict=True):
        assert torch.equal(one, other[1:, 1:, 4:, :30])


@pytest.mark.parametrize("generator", GENERATORS)
def test_noise_at_places_is_the_noise_of_the_tensor(generator: str) -> None:
    like = torch.empty(2, 3, 5, 100, dtype=torch.float64)
    source = noise(7, generator, first_query=2, first_example=1, first_head=4)
    places = tuple(index.flatten() for index in torch.meshgrid(*map(torch.arange, like.shape), indexing="ij"))
    assert torch.equal(source.normal_at(places, 5, like.dtype), source.normal(like, 5).flatten())
    uniform = source.uniform(like, 3).flatten(-3)[..., :100]
    assert torch.equal(source.uniform_at(places, 3, like.dtype), uniform.flatten())


def test_what_no_try_takes_is_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        counter_gamma, "_propose", lambda normal, uniform, d: (normal, torch.zeros_like(normal, dtype=torch.bool))
    )
    assert torch.equal(counter_gamma._boosted_root(noise(8), torch.ones(1, 1, 4, 5)), torch.ones(1, 1, 4, 5))


def test_samples_of_vmap_differ_and_have_gradients() -> None:
    log_a = logs(1.5, 1, 2, 30, 40).requires_grad_()

    def draw(_: Tensor) -> Tensor:
        return counter_gamma.log_gamma(CounterNoise(ba.numerics.counter_noise.draw_seed()), log_a)

    draws = torch.vmap(draw, randomness="different")(torch.arange(8))
    assert stats.kstest(draws.detach().exp().flatten().numpy(), "gamma", args=(1.5,)).pvalue > 1e-3
    assert abs(float(torch.corrcoef(draws.detach().flatten(1)).triu(1).abs().max())) < 0.1
    (gradient,) = torch.autograd.grad(draws.sum(), log_a)
    assert (gradient > 0).all()
