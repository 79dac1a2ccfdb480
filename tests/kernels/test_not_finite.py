"""NaN and infinities: what plain torch makes NaN is NaN on every backend, for every input, forward and backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.kernels import native
from helpers.backend_cases import NOT_FINITE, POSTERIORS, hidden, poisoned, results

NATIVE = pytest.mark.skipif(native.library().functions is None, reason="no compiler")
BACKENDS = ["chunked", pytest.param("native", marks=NATIVE)]
ALL = ["reference", *BACKENDS]


def problem(queries: int = 70, keys: int = 150, features: int = 16) -> tuple[Tensor, ...]:
    return torch.randn(2, 2, queries, features), torch.randn(2, 1, keys, features), torch.randn(2, 1, keys, 12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("masked", ["none", "causal", "lengths", "bias"])
@pytest.mark.parametrize("place", ["query", "key", "value", "parameter"])
@pytest.mark.parametrize("name", ["softmax", "weibull-contextual", "lognormal", "gaussian", "dirichlet"])
def test_what_is_nan_in_reference_is_nan(name: str, place: str, masked: str, backend: Any) -> None:
    arguments: dict[str, Any] = {
        "none": {},
        "causal": {"is_causal": True},
        "lengths": {"key_lengths": torch.tensor([150, 3])},
        "bias": {"attn_mask": torch.randn(70, 150).masked_fill(torch.rand(70, 150) < 0.2, -math.inf)},
    }[masked]
    value = NOT_FINITE[len(name + place + masked) % 3]
    posterior, tensors = poisoned(POSTERIORS[name].bind(num_heads=2, head_dim=16), problem(), place, value)
    reference = results(posterior, tensors, torch.float32, backend="reference", **arguments)
    ours = results(posterior, tensors, torch.float32, backend=backend, **arguments)
    assert hidden(ours, reference) == []
    assert torch.equal(ours["output"].isnan(), reference["output"].isnan())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("masked", ["none", "causal", "pairs"])
@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("name", ["weibull-contextual", "lognormal-share"])
def test_a_prior_whose_logits_are_all_infinite(name: str, value: float, masked: str, backend: Any) -> None:
    """A row of logits -inf is no row without keys, though both have a total of -inf."""
    allowed = torch.ones(170, 150, dtype=torch.bool).tril(-1)  # from nothing to everything
    arguments: dict[str, Any] = {
        "none": {},
        "causal": {"is_causal": True},
        "pairs": {"attn_mask": allowed},
    }[masked]
    posterior = POSTERIORS[name].bind(num_heads=2, head_dim=16)
    dict(posterior.named_parameters())["prior.network.outer.bias"].detach().fill_(value)
    tensors = problem(queries=170)
    reference = results(posterior, tensors, torch.float32, backend="reference", **arguments)
    assert reference["kl"].isnan().all()
    assert hidden(results(posterior, tensors, torch.float32, backend=backend, **arguments), reference) == []


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_softmax_is_nan_where_torchs_attention_is(place: int, backend: Any) -> None:
    tensors = [torch.randn(1, 2, 80, 16) for _ in range(3)]
    tensors[place][0, 1, 40, 3] = math.nan
    ours = ba.attend(*tensors, ba.Softmax(), backend=backend)
    expected = F.scaled_dot_product_attention(*tensors)
    assert expected.isnan().any()
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_number_in_a_float_mask_that_is_none_blocks_nothing(value: float, backend: Any) -> None:
    query, key, values = (torch.randn(1, 1, 80, 16) for _ in range(3))
    mask = torch.zeros(80, 80)
    mask[7, 9] = value
    ours = ba.attend(query, key, values, ba.Softmax(), mask, backend=backend)
    expected = F.scaled_dot_product_attention(query, key, values, mask)
    assert bool(expected[0, 0, 7].isnan().all()) == (value != -math.inf)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ALL)
def test_masked_numbers_that_are_none(backend: Any) -> None:
    """As in torch: a masked key's score does not matter, a masked value counts 0 times, and 0 · NaN is NaN."""
    query, key, value = (torch.randn(1, 1, 80, 16) for _ in range(3))
    lengths = torch.tensor([60])
    expected = ba.attend(query, key, value, ba.Softmax(), key_lengths=lengths, backend=backend)
    key[0, 0, 70] = math.nan
    unmoved = ba.attend(query, key, value, ba.Softmax(), key_lengths=lengths, backend=backend)
    torch.testing.assert_close(unmoved, expected, rtol=1e-5, atol=1e-5)
    value[0, 0, 70, 4] = math.nan
    poisoned = ba.attend(query, key, value, ba.Softmax(), key_lengths=lengths, backend=backend)
    assert poisoned[..., 4].isnan().all()
    assert int(poisoned.isnan().sum()) == 80


@pytest.mark.parametrize("backend", ALL)
def test_scores_that_overflow(backend: Any) -> None:
    query, key, value = (torch.randn(1, 1, 80, 16) for _ in range(3))
    query[0, 0, 5] = 1e30 * key[0, 0, 66].sign()
    key[0, 0, 66] = 1e30 * key[0, 0, 66].sign()
    output = ba.attend(query, key, value, ba.Softmax(), backend=backend)
    assert output[0, 0, 5].isnan().all()
    assert output[0, 0, :5].isfinite().all()


@pytest.mark.parametrize("backend", ALL)
def test_values_near_float32s_largest_number(backend: Any) -> None:
    """Their weighted mean is a number, though the sum of what is weighted is none."""
    query, key = (torch.randn(1, 1, 80, 16) for _ in range(2))
    value = torch.full((1, 1, 80, 16), 1e37)
    output = ba.attend(query, key, value, ba.Softmax(), backend=backend)
    torch.testing.assert_close(output, value, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_gradient_that_is_none_is_passed_on(value: float, backend: Any) -> None:
    tensors = [torch.randn(1, 1, 80, 16, requires_grad=True) for _ in range(3)]
    output = ba.attend(*tensors, ba.Weibull(10.0), backend=backend, generator=torch.Generator().manual_seed(1))
    upstream = torch.ones_like(output)
    upstream[0, 0, 7, 3] = value
    of_query, of_key, of_value = torch.autograd.grad(output, tensors, upstream)
    assert not of_query[0, 0, 7].isfinite().any()
    assert of_query[0, 0, :7].isfinite().all()
    assert not of_key.isfinite().any()
    assert not of_value[..., 3].isfinite().any()
    assert of_value[..., :3].isfinite().all()


@pytest.mark.parametrize("tokens", [16, 80])
def test_one_weight_of_an_encoder(tokens: int) -> None:
    """Short sentences run on `reference`, long ones on a kernel: both show that the model is broken."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 32, batch_first=True), 1)
    converted = ba.convert(encoder.eval(), ba.Weibull(10.0))
    with torch.no_grad():
        attention = next(each for each in converted.modules() if isinstance(each, nn.MultiheadAttention))
        attention.in_proj_weight[33, 1] = math.nan  # of a key
    assert converted(torch.randn(2, tokens, 32)).isnan().any(-1).all()
