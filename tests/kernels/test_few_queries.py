"""Few queries against many keys, as in decoding: spans of keys that are put together, against `reference` in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.kernels import native
from bayesattn.kernels.operator import attention
from helpers.backend_cases import NOT_FINITE, POSTERIORS, assert_near, assert_same, hidden, poisoned, results

pytestmark = pytest.mark.skipif(native.library().functions is None, reason="no compiler")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
KEYS = 1300
"""Three spans of 512, the last one not full."""


def problem(queries: int, group: int = 2, keys: int = KEYS, features: int = 20) -> tuple[Tensor, ...]:
    shapes = ((2, 2 * group, queries, features), (2, 2, keys, features), (2, 2, keys, 24))
    return tuple(torch.randn(shape).bfloat16().half().float() for shape in shapes)


def compare(name: str, tensors: tuple[Tensor, ...], dtype: torch.dtype, **arguments: Any) -> None:
    posterior = POSTERIORS[name].bind(num_heads=tensors[0].shape[1], head_dim=tensors[0].shape[-1])
    if not posterior.counter_noise:
        arguments.pop("dropout_p", None)
    reference = results(posterior, tensors, torch.float64, backend="reference", **arguments)
    ours = results(posterior, tensors, dtype, backend="native", **arguments)
    assert_same(ours, reference) if dtype == torch.float32 else assert_near(ours, reference, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("queries", "group"), [(1, 1), (1, 2), (1, 3), (2, 2), (1, 8), (3, 1), (5, 2), (16, 1)])
def test_queries_and_heads_that_share_keys(queries: int, group: int, dtype: torch.dtype) -> None:
    torch.manual_seed(queries)
    compare("weibull", problem(queries, group), dtype, dropout_p=0.2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(set(POSTERIORS) - {"dirichlet-positions"}))
def test_every_posterior_and_mask(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    tensors = problem(3)
    bias = torch.randn(1, 4, 3, KEYS).masked_fill(torch.rand(3, KEYS) < 0.2, -math.inf)
    bias[0, :, 1] = -math.inf  # a row without keys
    bias[0, :, 2, :1000] = -math.inf  # and one without keys in the first span
    for arguments in ({"attn_mask": bias}, {"key_lengths": torch.tensor([513, 0])}):
        compare(name, tensors, dtype, **arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", [1, 16, 48, 64, 80])
def test_heads_of_any_size(features: int, dtype: torch.dtype) -> None:
    torch.manual_seed(features)
    compare("lognormal", problem(1, 2, 75, features), dtype)
    compare("lognormal", problem(1, 5, 75, features), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", ["none", "lengths", "bias"])
@pytest.mark.parametrize("place", ["query", "key", "value"])
def test_what_is_nan_in_reference_is_nan(place: str, masked: str, dtype: torch.dtype) -> None:
    arguments: dict[str, Any] = {
        "none": {},
        "lengths": {"key_lengths": torch.tensor([KEYS, 3])},
        "bias": {"attn_mask": torch.zeros(1, KEYS).masked_fill(torch.rand(KEYS) < 0.5, -math.inf)},
    }[masked]
    for value in NOT_FINITE:
        posterior, tensors = poisoned(ba.Weibull(2.0), problem(1), place, value)
        reference = results(posterior, tensors, torch.float32, backend="reference", **arguments)
        ours = results(posterior, tensors, dtype, backend="native", **arguments)
        assert hidden(ours, reference) == []
        assert torch.equal(ours["output"].isnan(), reference["output"].isnan())


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_do_not_change_a_bit(dtype: torch.dtype) -> None:
    tensors = problem(2)
    expected = results(ba.Weibull(2.0), tensors, dtype, backend="native", dropout_p=0.2)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            ours = results(ba.Weibull(2.0), tensors, dtype, backend="native", dropout_p=0.2)
            assert all(torch.equal(ours[part], expected[part]) for part in expected)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_that_share_their_scores(dtype: torch.dtype) -> None:
    query, key, value = (tensor.to(dtype) for tensor in problem(2))
    scale, seed = torch.full((2, 4, 2), 0.5), torch.tensor([3])
    rest: Any = (False, "normal", "philox", 0.2, "sum", True, False, 0.0)
    shared = attention(query, key, value, None, None, None, seed, scale, None, None, 0.2, *rest, 3, "native")
    folded = [torch.cat([tensor] * 3) for tensor in (query, key, value, scale)]
    apart = attention(*folded[:3], None, None, None, seed, folded[3], None, None, 0.2, *rest, 1, "native")
    assert torch.equal(shared[0], apart[0])
    assert torch.equal(shared[1], apart[1])
    assert torch.equal(shared[2], apart[2][:, :2])
    assert not torch.equal(shared[0][:2], shared[0][2:4])


def test_many_queries_give_what_few_do() -> None:
    """The same rows, by the other path: more than 16 queries, of which the first ones are looked at."""
    query, key, value = problem(20)
    outputs = []
    for queries in (2, 20):
        torch.manual_seed(5)
        outputs.append(ba.attend(query[:, :, :queries], key, value, ba.Weibull(1.0), enable_gqa=True, backend="native"))
    torch.testing.assert_close(outputs[1][:, :, :2], outputs[0], rtol=1e-5, atol=1e-5)
