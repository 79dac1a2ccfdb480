"""The attention module: both its forms against each other and against torch's, masks, causality, the cache."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.nvib import NVIB, DecodingCache, DenoisingMultiheadAttention, Mixture

X = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(1))
PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] * 5 + [True]])


def attention(batch_first: bool = True, **options: object) -> DenoisingMultiheadAttention:
    made = DenoisingMultiheadAttention(16, 4, nvib=NVIB(**options), batch_first=batch_first)  # pyright: ignore
    nn.init.normal_(made.in_proj_bias, std=0.3)
    return made


def points(components: int = 7) -> Mixture:
    mask = torch.ones(3, components, dtype=torch.bool)
    mask[1, 5:] = False
    return Mixture(torch.randn(3, components, 16), None, torch.randn(3, components), mask)


def test_points_by_keys_and_values_or_in_latent_space() -> None:
    """The fused form (project the latent) and the closed form at σ = 0 (project the queries) are one attention."""
    module, latent = attention().eval(), points()
    certain = Mixture(latent.mean, torch.full_like(latent.mean, -1000.0), latent.log_weight, latent.mask)
    fused, fused_weights = module(X, latent)
    closed, closed_weights = module(X, certain)
    assert torch.allclose(fused, closed, atol=1e-5)
    assert torch.allclose(fused_weights, closed_weights, atol=1e-6)
    assert torch.allclose(fused, module(X, latent, need_weights=False)[0])


@pytest.mark.parametrize("masked", [True, False])
def test_with_the_right_counts_it_is_torchs_attention(masked: bool) -> None:
    module = attention()
    plain = nn.MultiheadAttention(16, 4, batch_first=True)
    plain.load_state_dict({name: value for name, value in module.state_dict().items() if "nvib" not in name})
    log_alpha = X.square().sum(-1) / (2.0 * math.sqrt(4))
    # the mixture has a first component in the place of the prior's, of no weight
    latent = Mixture(
        torch.cat([torch.zeros(3, 1, 16), X], 1),
        None,
        torch.cat([torch.full((3, 1), -math.inf), log_alpha], 1),
        torch.cat([torch.ones(3, 1, dtype=torch.bool), ~PADDING], 1),
    )
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1) if masked else None
    ours, weights = module(X, latent, attn_mask=mask, average_attn_weights=False)
    theirs, expected = plain(X, X, X, key_padding_mask=PADDING, attn_mask=mask, average_attn_weights=False)
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert torch.allclose(weights[..., 1:], expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["eval", "sampling"])
@pytest.mark.parametrize("kappa", [1, 2])
def test_nothing_of_the_future_is_seen(mode: str, kappa: int) -> None:
    module = attention(kappa=kappa, alpha="quadratic").eval()
    changed = X.clone()
    changed[:, 3:] *= 30.0  # the pseudo-counts of the future become immense

    def run(x: Tensor, **options: object) -> tuple[Tensor, Tensor]:
        if mode == "eval":
            return module(x, x, x, **options)
        with ba.sampling(torch.Generator().manual_seed(5)):
            return module(x, x, x, **options)

    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    for options in ({"is_causal": True}, {"attn_mask": causal}, {"attn_mask": causal.expand(12, 6, 6)}):
        points_of_each = 2 if (kappa == 2 and mode == "sampling") else 1
        _, weights = run(changed, **options)
        columns = weights.unflatten(-1, (7, points_of_each)).sum(-1)
        assert (columns[:, :, 1:].masked_select(causal) == 0).all()
        assert (columns[:, 0, 0] > 0).all(), "the prior is seen"
        assert torch.allclose(columns.sum(-1), torch.ones(3, 6), atol=1e-5)
    if mode == "eval":
        before, after = run(X, is_causal=True)[0], run(changed, is_causal=True)[0]
        assert torch.allclose(before[:, :3], after[:, :3], atol=1e-6)
        assert not torch.allclose(before[:, 3:], after[:, 3:], atol=1e-3)


@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1, 1], [3, 1, 2]])
def test_decoding_with_a_cache_is_one_pass(steps: list[int]) -> None:
    module, cache = attention(threshold=0.5, prior_alpha=0.3).eval(), DecodingCache()
    whole, weights = module(X, X, X, is_causal=True)
    parts = [module(part, part, cache=cache) for part in X.split(steps, 1)]
    assert torch.allclose(torch.cat([part for part, _ in parts], 1), whole, atol=1e-5)
    assert torch.allclose(parts[-1][1], weights[:, -steps[-1] :], atol=1e-6)


@pytest.mark.parametrize("kappa", [1, 2])
def test_decoding_by_sampling_keeps_what_was_drawn(kappa: int) -> None:
    module, cache = attention(kappa=kappa).eval(), DecodingCache()
    with ba.sampling():
        module(X[:, :3], X[:, :3], cache=cache)
        first = cache.mixture
        _, weights = module(X[:, 3:5], X[:, 3:5], cache=cache)
    assert first is not None
    assert cache.mixture is not None
    assert torch.equal(cache.mixture.mean[:, : 4 * kappa], first.mean)
    assert torch.equal(cache.mixture.log_weight[:, : 4 * kappa], first.log_weight)
    assert weights.shape == (3, 2, 6 * kappa)
    assert (weights[:, 0, 5 * kappa :] == 0).all(), "the first of two new tokens does not see the second"
    assert (weights[:, 1, 5 * kappa :].sum(-1) > 0).all()


def test_padding_is_not_there() -> None:
    module = attention().eval()
    padded, weights = module(X, X, X, key_padding_mask=PADDING)
    short, _ = module(X[1:2], X[1:2, :4], X[1:2, :4])
    with pytest.raises(ValueError, match="value must be key"):
        module(X, X, X.clone())
    assert torch.allclose(padded[1], short[0], atol=1e-5)
    assert (weights[1, :, 5:] == 0).all()
    additive = torch.zeros(3, 6).masked_fill(PADDING, -math.inf)
    assert torch.equal(module(X, X, X, key_padding_mask=additive)[0], padded)


def test_layouts_agree() -> None:
    first = attention().eval()
    second = attention(batch_first=False).eval()
    second.load_state_dict(first.state_dict())
    expected, weights = first(X, X, X)
    turned = X.transpose(0, 1)
    output, same = second(turned, turned, turned)
    assert torch.allclose(output.transpose(0, 1), expected, atol=1e-6)
    assert torch.allclose(same, weights, atol=1e-6)
    alone, weights_alone = first(X[0], X[0], X[0])
    assert torch.allclose(alone, expected[0], atol=1e-6)
    assert torch.allclose(weights_alone, weights[0], atol=1e-6)
    every = first(X, X, X, average_attn_weights=False)[1]
    assert torch.allclose(every.mean(1), weights, atol=1e-6)


def test_the_drawn_attention_averages_near_the_closed_form() -> None:
    """With little noise the mean of draws is the evaluation form, so both read the same latent."""
    module = attention(alpha="exp").eval()
    assert module.nvib is not None
    nn.init.constant_(module.nvib.log_variance.bias, -9.0)
    nn.init.zeros_(module.nvib.log_variance.weight)
    nn.init.constant_(module.nvib.log_alpha.bias, 7.0)
    nn.init.constant_(module.nvib.prior.log_variance, -9.0)
    nn.init.constant_(module.nvib.prior.log_alpha, 6.0)
    closed = module(X, X, X)[0]
    with ba.sampling(), torch.no_grad():
        many = X.repeat(300, 1, 1)
        drawn = module(many, many, many, need_weights=False)[0].unflatten(0, (300, 3))
    assert torch.allclose(drawn.mean(0), closed, atol=5e-3)
    assert drawn.std(0).mean() > 1e-3


@pytest.mark.parametrize("training", [True, False])
def test_half_precision_is_near_full(training: bool) -> None:
    module = attention(alpha="quadratic").train(training)
    x = 3.0 * X
    full = module(x, x, x, need_weights=False)[0] if not training else None
    with torch.autocast("cpu", torch.bfloat16):
        cast = module(x, x, x, need_weights=False)[0]
    assert cast.dtype == torch.bfloat16
    module.bfloat16()
    half = module(x.bfloat16(), x.bfloat16(), need_weights=False)[0]
    assert half.dtype == torch.bfloat16
    if full is not None:
        assert torch.allclose(cast.float(), full, atol=0.1)
        assert torch.allclose(half.float(), full, atol=0.1)
    else:
        half.float().square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    module = attention()
    with pytest.raises(ValueError, match=r"cache is for decoding: call eval\(\) first"):
        module(X, X, cache=DecodingCache())
    with pytest.raises(ValueError, match="leave key_padding_mask and cache None"):
        module(X, points(), key_padding_mask=PADDING)
    with pytest.raises(ValueError, match="a Mixture has no order"):
        module(X, points(), is_causal=True)
    with pytest.raises(ValueError, match="give it a Mixture as key"):
        DenoisingMultiheadAttention(16, 4, batch_first=True)(X, X)
    with pytest.raises(ValueError, match=r"attn_mask must have shape \(query, token\)"):
        module(X, X, attn_mask=torch.ones(6, 4).bool())
    with pytest.raises(ValueError, match="both 2 without a batch"):
        module(X, X[0])
    with pytest.raises(ValueError, match="compat='v4' is not known"):
        DenoisingMultiheadAttention(16, 4, compat="v4")  # pyright: ignore
