"""Samples that share their scores are what a folded batch gives, and vmap finds them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.kernels import native
from bayesattn.kernels.call import Call
from bayesattn.kernels.operator import attention

NATIVE = pytest.mark.skipif(native.library().functions is None, reason="no compiler")
BACKENDS = ["chunked", pytest.param("native", marks=NATIVE)]
SAMPLES, BATCH, HEADS, QUERIES, KEYS = 3, 2, 4, 70, 90


def problem(backend: str, noise: str, dropout_p: float, causal: bool) -> Call:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(BATCH, HEADS, QUERIES, 16, generator=generator)
    key, value = (torch.randn(BATCH, 2, KEYS, size, generator=generator) for size in (16, 20))
    return Call(
        query,
        key,
        value,
        allowed=torch.rand(1, HEADS, QUERIES, KEYS, generator=generator) > 0.2,
        bias=torch.randn(BATCH, 1, 1, KEYS, generator=generator),
        key_lengths=torch.tensor([KEYS, 50]),
        seed=torch.tensor([5]),
        noise_scale=torch.rand(BATCH, HEADS, QUERIES, generator=generator),
        prior_logits=None,
        prior_total=None,
        scale=0.25,
        causal=causal,
        noise=noise,
        generator="philox",
        dropout_p=dropout_p,
        statistics="sum",
        wants_total=True,
        wants_exponentials=False,
        log_concentration=0.0,
        samples=1,
        backend=backend,
    )


def folded(call: Call) -> Call:
    """The same problem `SAMPLES` times in one batch."""
    names = ("query", "key", "value", "bias", "key_lengths", "noise_scale")
    return call._replace(**{name: torch.cat([getattr(call, name)] * SAMPLES) for name in names})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("noise", "dropout_p"), [("log_exponential", 0.0), ("normal", 0.3)])
def test_samples_are_those_of_a_folded_batch(backend: str, noise: str, dropout_p: float) -> None:
    call = problem(backend, noise, dropout_p, causal=dropout_p > 0)
    output, log_total, statistics = attention(*call._replace(samples=SAMPLES))
    expected = attention(*folded(call))
    assert torch.allclose(output, expected[0], atol=1e-5)
    assert torch.allclose(log_total, expected[1], atol=1e-5)
    assert torch.allclose(statistics, expected[2][:, :BATCH], rtol=1e-5, atol=1e-4)
    one, other, _ = output.split(BATCH)
    assert (one - other).abs().mean() > 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_vmap_shares_what_is_the_same_and_folds_what_differs(backend: str) -> None:
    call = problem(backend, "log_exponential", 0.0, causal=False)
    expected = attention(*folded(call))

    def run(seed: Tensor, query: Tensor) -> tuple[Tensor, ...]:
        return attention(*call._replace(seed=seed, query=query))

    seeds = torch.tensor([[5], [6], [7]])
    shared = torch.vmap(run, in_dims=(0, None))(seeds, call.query)
    differing = torch.vmap(run, in_dims=(0, 1))(seeds, torch.stack([call.query] * SAMPLES, 1))
    for found in (shared, differing):
        assert torch.allclose(found[0].flatten(0, 1), expected[0], atol=1e-5)
        assert torch.allclose(found[1].flatten(0, 1), expected[1], atol=1e-5)
        assert torch.allclose(found[2].movedim(0, 1).flatten(1, 2), expected[2], rtol=1e-5, atol=1e-4)


def test_vmap_refuses_noise_that_would_not_be_the_same() -> None:
    call = problem("chunked", "log_exponential", 0.0, causal=False)
    with pytest.raises(NotImplementedError, match="randomness='different'"):
        torch.vmap(lambda query: attention(*call._replace(query=query)))(torch.stack([call.query] * 2))


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_vmapped_attention_draws_for_each_sample(backend: Any) -> None:
    """The mean over samples is that of single calls, and samples are as far apart as single calls are."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, 20, 16) for _ in range(3))

    def draw(_: Tensor) -> Tensor:
        return ba.attend(q, k, v, ba.Weibull(1.0), backend=backend)

    with torch.no_grad():
        together = torch.vmap(draw, randomness="different")(torch.arange(400))
        apart = torch.stack([draw(q) for _ in range(400)])
    error = ((together.var(0) + apart.var(0)) / 400).sqrt()
    assert ((together.mean(0) - apart.mean(0)) / error).abs().max() < 5
    assert abs(float(together.var(0).mean() / apart.var(0).mean()) - 1) < 0.1
