"""`native` in bfloat16 and float16, which it reads and writes as they are, against `reference` in float64 of the same numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.kernels import native
from helpers.backend_cases import NOT_FINITE, POSTERIORS, assert_near, hidden, poisoned, results

pytestmark = pytest.mark.skipif(native.library().functions is None, reason="no compiler")
HALVES = [torch.bfloat16, torch.float16]
LENGTHS = (1, 2, 3, 15, 16, 17, 32, 33, 63, 64, 65, 66, 127, 129, 255, 300)


def problem(queries: int, keys: int, features: int = 20, values: int = 24) -> tuple[Tensor, ...]:
    """Two heads of queries share one of keys; the numbers are those of bfloat16, and of float16 too."""
    shapes = ((2, 4, queries, features), (2, 2, keys, features), (2, 2, keys, values))
    return tuple(torch.randn(shape).bfloat16().half().float() for shape in shapes)


def compare(name: str, tensors: tuple[Tensor, ...], dtype: torch.dtype, **arguments: Any) -> None:
    posterior = POSTERIORS[name].bind(num_heads=4, head_dim=tensors[0].shape[-1])
    if not posterior.counter_noise:
        arguments.pop("dropout_p", None)
    reference = results(posterior, tensors, torch.float64, backend="reference", **arguments)
    assert_near(results(posterior, tensors, dtype, backend="native", **arguments), reference, dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted(set(POSTERIORS) - {"dirichlet-positions"}))
def test_every_posterior_mask_and_dropout(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    tensors = problem(90, 200)
    bias = torch.randn(1, 4, 90, 200).masked_fill(torch.rand(90, 200) < 0.2, -math.inf)
    bias[0, :, 5] = -math.inf  # a row without keys
    for arguments in (
        {},
        {"is_causal": True, "dropout_p": 0.2},
        {"attn_mask": bias},
        {"key_lengths": torch.tensor([199, 0])},
    ):
        compare(name, tensors, dtype, **arguments)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("noise", ["philox", "hash"])
@pytest.mark.parametrize("features", [1, 7, 16, 48, 64, 80])
def test_heads_of_any_size(features: int, noise: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(features)
    with ba.kernels.use(noise=noise):
        compare("weibull", problem(37, 75, features, features + 3), dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(length: int, dtype: torch.dtype) -> None:
    torch.manual_seed(length)
    compare("weibull", problem(length, length), dtype, is_causal=length % 2 == 0)
    compare("lognormal", problem(3, length), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_every_length(dtype: torch.dtype) -> None:
    for length in range(1, 301):
        torch.manual_seed(length)
        for name, queries in (("weibull", length), ("lognormal", 1 + length % 5), ("softmax", 301 - length)):
            tensors, arguments = problem(queries, length, 16, 16), {"is_causal": length % 3 == 0}
            if dtype != torch.float32:
                compare(name, tensors, dtype, **arguments)
                continue
            found = [
                results(POSTERIORS[name], tensors, of, backend=backend, **arguments)
                for backend, of in (("native", dtype), ("reference", torch.float64))
            ]
            for part, expected in found[1].items():
                difference = (found[0][part] - expected).abs().max()
                assert difference < 1e-4 * expected.abs().max() + 1e-5, (length, name, part)


@pytest.mark.parametrize("dtype", HALVES)
def test_strides_do_not_matter(dtype: torch.dtype) -> None:
    """Of heads and positions in one tensor, and of rows whose step is odd."""
    packed, wide = torch.randn(2, 40, 3, 4, 16).to(dtype), torch.randn(3, 2, 4, 40, 33).to(dtype)[..., 1:17]
    for q, k, v in (packed.permute(2, 0, 3, 1, 4), wide):
        outputs = []
        for tensors in ((q, k, v), (q.contiguous(), k.contiguous(), v.contiguous())):
            torch.manual_seed(1)
            outputs.append(ba.attend(*tensors, ba.Weibull(1.0), backend="native"))
        assert torch.equal(outputs[0], outputs[1])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("place", ["query", "key", "value"])
@pytest.mark.parametrize("masked", ["none", "causal", "lengths"])
@pytest.mark.parametrize("queries", [3, 70])
def test_what_is_nan_in_reference_is_nan(queries: int, masked: str, place: str, dtype: torch.dtype) -> None:
    arguments: dict[str, Any] = {
        "none": {},
        "causal": {"is_causal": True},
        "lengths": {"key_lengths": torch.tensor([150, 3])},
    }[masked]
    for value in NOT_FINITE:
        posterior, tensors = poisoned(ba.Weibull(2.0), problem(queries, 150), place, value)
        reference = results(posterior, tensors, torch.float32, backend="reference", **arguments)
        ours = results(posterior, tensors, dtype, backend="native", **arguments)
        assert hidden(ours, reference) == []
        assert torch.equal(ours["output"].isnan(), reference["output"].isnan())


def test_bfloat16_near_its_largest_number() -> None:
    """A weighted mean is a number, though the sum of what is weighted is none; scores that overflow are none."""
    query, key = (torch.randn(1, 1, 80, 16).bfloat16() for _ in range(2))
    value = torch.full((1, 1, 80, 16), 1e38).bfloat16()
    for queries in (query, query[:, :, :2]):
        output = ba.attend(queries, key, value, ba.Weibull(2.0), backend="native")
        torch.testing.assert_close(output.double(), value[:, :, : queries.shape[2]].double(), rtol=2**-7, atol=0.0)
        large = ba.attend(queries * 1e30, key * 1e30, key, ba.Softmax(), backend="native")
        assert torch.equal(
            large.isnan(), ba.attend(queries * 1e30, key * 1e30, key, ba.Softmax(), backend="reference").isnan()
        )


def test_a_gradient_that_float16_cannot_hold() -> None:
    """What is finite in float32 is float16's largest number, as with the other backends; what is not stays infinite."""
    tensors = [torch.randn(1, 1, 70, 16).half().requires_grad_() for _ in range(3)]
    output = ba.attend(*tensors, ba.Weibull(10.0), backend="native")
    of_query, of_key, of_value = torch.autograd.grad(output, tensors, torch.full_like(output, 6e4))
    assert all(bool(gradient.isfinite().all()) for gradient in (of_query, of_key, of_value))
    assert of_value.abs().max() == 65504


@pytest.mark.parametrize("dtype", HALVES)
def test_every_number_is_read_and_written_as_torch_does(dtype: torch.dtype) -> None:
    """One key, whose value is the output: all numbers of 16 bits that are none too large for float32's sums."""
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    numbers = bits[bits.isfinite() & (bits.float().abs() < 1e25)]
    value = numbers[: len(numbers) // 64 * 64].view(-1, 1, 1, 64)
    query = torch.zeros(len(value), 1, 1, 64, dtype=dtype)
    output = ba.attend(query, query, value, ba.Softmax(), backend="native")
    flushed = value.float().abs() < 2**-126  # of bfloat16: products of pairs take these for 0
    assert torch.equal(output[~flushed], value[~flushed])
    assert (output[flushed] == 0).logical_or(output[flushed] == value[flushed]).all()
