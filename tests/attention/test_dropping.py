"""Dropout from the counters: the law of torch's, the same with and without a compiler, and different for every sample."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bayesattn as ba
from bayesattn.attention.dropping import CountedDropout
from bayesattn.kernels import dropping, native
from bayesattn.numerics.counter_noise import GENERATORS, NoiseGenerator

pytestmark = pytest.mark.skipif(native.library().functions is None, reason="no compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 4095, 4096, 4097, 70_001])
def test_native_is_what_plain_torch_makes_of_the_counters(
    monkeypatch: pytest.MonkeyPatch, count: int, generator: NoiseGenerator, dtype: torch.dtype
) -> None:
    x, seed = torch.randn(count).to(dtype), torch.tensor([-5])
    compiled = dropping.dropout(x, seed, generator, 0.3)
    monkeypatch.setattr(dropping, "is_native", lambda _: False)
    plain = dropping.dropout(x, seed, generator, 0.3)
    assert torch.equal(compiled == 0, plain == 0)
    torch.testing.assert_close(compiled, plain, rtol=float(torch.finfo(dtype).eps), atol=0.0)


@pytest.mark.parametrize("p", [0.02, 0.5, 0.9])
def test_the_law_is_torchs(p: float) -> None:
    x = torch.ones(1000, 1000)
    with torch.no_grad(), CountedDropout(torch.Generator().manual_seed(1)):
        dropped = F.dropout(x, p)
        again = F.dropout(x, p)
    kept = dropped != 0
    error = math.sqrt(p * (1 - p) / x.numel())
    assert abs(float(kept.float().mean()) - (1 - p)) < 5 * error
    assert torch.allclose(dropped[kept], torch.tensor(1 / (1 - p)))
    for one, other in ((kept[:, 1:], kept[:, :-1]), (kept[1:], kept[:-1]), (kept, again != 0)):  # all independent
        both = (one & other).float().mean()
        assert abs(float(both) - (1 - p) ** 2) < 5 * math.sqrt((1 - p) ** 2 / one.numel())


def test_a_number_that_is_none_stays_none_as_with_torch() -> None:
    x = torch.full((64,), math.nan)
    with torch.no_grad(), CountedDropout():
        assert F.dropout(x, 0.5).isnan().all()


def test_what_is_left_to_torch() -> None:
    x = torch.ones(100, requires_grad=True)
    with CountedDropout():
        (gradient,) = torch.autograd.grad(F.dropout(x, 0.5).sum(), x)  # the counters' has none
    assert set(gradient.unique().tolist()) == {0.0, 2.0}
    with torch.no_grad(), CountedDropout():
        assert torch.equal(F.dropout(x, 0.5, training=False), x)
        assert torch.equal(F.dropout(x, 1.0), torch.zeros(100))
        assert F.dropout(x.double(), 0.5).dtype == torch.float64
        changed = torch.ones(100)
        assert F.dropout(changed, 0.5, inplace=True) is changed
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(*(torch.ones(1, heads, 4, 8) for heads in (3, 2, 2)), dropout_p=0.5)


@pytest.mark.parametrize("masked", ["none", "causal", "boolean", "float"])
def test_attentions_dropout_has_torchs_mean_and_spread(masked: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 6, 8) for _ in range(3))
    allowed = torch.rand(2, 1, 6, 6) > 0.3
    allowed[..., 0] = True
    bias = torch.randn(6, 6).masked_fill(torch.rand(6, 6) < 0.2, -math.inf)
    bias[:, 0] = 0.0
    arguments = {
        "none": {},
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": allowed},
        "float": {"attn_mask": bias},
    }

    def draw(_: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, **arguments[masked])

    with torch.no_grad():
        theirs = torch.stack([draw(q) for _ in range(4000)])
        with CountedDropout():
            ours = torch.vmap(draw, randomness="different")(torch.arange(4000))
    error = ((ours.var(0) + theirs.var(0)) / 4000).sqrt() + 1e-6
    assert ((ours.mean(0) - theirs.mean(0)) / error).abs().max() < 5.5
    assert abs(float(ours.var(0).mean() / theirs.var(0).mean()) - 1) < 0.1


def test_samples_of_vmap_differ_and_a_generator_repeats_them() -> None:
    x = torch.ones(3, 50)

    def draw() -> Tensor:
        with torch.no_grad(), CountedDropout(torch.Generator().manual_seed(3)):
            return torch.vmap(lambda _: F.dropout(F.dropout(x, 0.5), 0.5), randomness="different")(torch.arange(5))

    found = draw()
    assert torch.equal(draw(), found)
    assert len(found.flatten(1).unique(dim=0)) == 5
    assert set(found.unique().tolist()) == {0.0, 4.0}
    with torch.no_grad(), CountedDropout(), pytest.raises((NotImplementedError, RuntimeError), match="different"):
        torch.vmap(lambda row: F.dropout(row, 0.5))(x)


def test_predict_takes_it() -> None:
    """One generator, one prediction; without it as many as one asks for."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 3))
    x = torch.randn(4, 8)
    one, other = (
        ba.predict(model, x, 16, dropout=True, generator=torch.Generator().manual_seed(2)).samples for _ in range(2)
    )
    assert torch.equal(one, other)
    assert (one.std(0) > 1e-3).all()
    assert not torch.equal(ba.predict(model, x, 16, dropout=True).samples, one)


def test_a_mask_beside_is_causal_is_torchs_to_refuse() -> None:
    x = torch.randn(1, 2, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool)
    with torch.no_grad(), CountedDropout(), pytest.raises(RuntimeError, match="is_causal"):
        F.scaled_dot_product_attention(x, x, x, mask, dropout_p=0.5, is_causal=True)
