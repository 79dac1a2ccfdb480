"""Denoising attention: what a query, read as a noisy observation, says about a vector drawn from the mixture."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.attention.masks import split_mask
from bayesattn.numerics.precision import to_compute
from bayesattn.nvib.mixture import LOG_VARIANCE_RANGE, Mixture
from bayesattn.posteriors.rows import DenseRows
from bayesattn.support import checks
from bayesattn.support.annotations import Float

Compat = Literal["v3", "v1"]


def denoising_attention(
    query: Float[Tensor, "batch heads query dim"],
    mixture: Mixture,
    attn_mask: Tensor | None = None,
    *,
    head_dim: int | None = None,
    compat: Compat | None = None,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "batch heads query dim"], Float[Tensor, "batch heads query components"]]:
    """E[v | u] for v drawn from the mixture and u = v + noise of variance sqrt(d), and the components' weights.

        ∫ f(v) N(u; v, sqrt(d)) v dv / ∫ f(v) N(u; v, sqrt(d)) dv,    f = Σ_i w_i N(μ_i, σ_i²).

    With v_i = σ_i² + sqrt(d), elementwise, it is a softmax over components of

        log w_i + Σ_p [ u μ_i / v_i - μ_i² / 2v_i - log(v_i) / 2 - u² / 2v_i ]

    of the values (σ_i² / v_i) u + (sqrt(d) / v_i) μ_i. For points (σ = 0) it is attention with keys and values μ_i and the bias
    log w_i - ‖μ_i‖² / 2 sqrt(d).

    Args:
        query: u, projected into the space of the mixture.
        mixture: what is attended to; points or Gaussians.
        attn_mask: True = may attend, or float, added to the logits; broadcastable to [batch, heads, query, components].
        head_dim: d, by default the dimension of the mixture.
        compat: None is exact. "v3" leaves out the u² term, as the released versions 2024 do; "v1" leaves it out and doubles the log v
            term, as those of 2023 do. Both are off where σ differs between components.
        dropout_p: dropout of the weights, applied whenever it is above 0.

    >>> import torch, bayesattn as ba
    >>> latent = ba.nvib.NVIB(8).eval()(torch.randn(2, 5, 8))
    >>> output, weights = ba.nvib.denoising_attention(torch.randn(2, 1, 3, 8), latent)
    >>> output.shape, weights.shape
    (torch.Size([2, 1, 3, 8]), torch.Size([2, 1, 3, 6]))
    """
    check_compat(compat)
    checks.fraction("dropout_p", dropout_p)
    noise = math.sqrt(query.shape[-1] if head_dim is None else checks.whole("head_dim", head_dim))
    u, mean = to_compute(query), to_compute(mixture.mean).unsqueeze(1)
    with torch.autocast(u.device.type, enabled=False):
        if mixture.log_variance is None:
            logits = (u / noise) @ mean.transpose(-2, -1) + key_bias(mixture, noise)[:, None, None]
            weights, dropped = _weights(logits, mixture, attn_mask, dropout_p)
            return dropped @ mean, weights
        variance = to_compute(mixture.log_variance).clamp(*LOG_VARIANCE_RANGE).exp().unsqueeze(1)
        total = variance + noise
        to_mean = noise / total  # of each component's value, the share that is its mean; the rest is the query
        to_query = variance / total
        log_volume = torch.log1p(variance / noise).sum(-1)
        bias = log_weight_or_lowest(mixture)[:, None] - 0.5 * (mean.square() / total).sum(-1)
        bias = bias - (1.0 if compat == "v1" else 0.5) * log_volume
        logits = u @ (mean / total).transpose(-2, -1) + bias.unsqueeze(-2)
        if compat is None:
            # -u²/2v without its part -u²/2sqrt(d), which is the same for all components and may be large
            logits = logits + (u.square() / (2.0 * noise)) @ to_query.transpose(-2, -1)
        weights, dropped = _weights(logits, mixture, attn_mask, dropout_p)
        return u * (dropped @ to_query) + dropped @ (to_mean * mean), weights


def attend_points(
    query: Float[Tensor, "batch heads query features"],
    key: Float[Tensor, "batch heads components features"],
    value: Float[Tensor, "batch heads components features"],
    bias: Float[Tensor, "batch components"],
    attn_mask: Float[Tensor, "#batch #heads query components"] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "batch heads query features"]:
    """softmax(q·k / sqrt(d) + bias) v through `F.scaled_dot_product_attention`'s fused kernels.

    A mask that needs a gradient would keep torch from them, so the bias travels as further features of the keys, against constant
    ones of the queries. In half precision it is cut into three, each the rest of the one before: 300 is 300 ± 1 in bfloat16.
    """
    features = query.shape[-1]
    pieces = _pieces(bias, key.dtype)
    idle = -(features + len(pieces)) % 8  # kernels like widths of whole vectors
    constant = query.new_tensor([math.sqrt(features)] * len(pieces) + [0.0] * idle)
    carried = F.pad(torch.stack(pieces, -1), (0, idle)).unsqueeze(1)
    output = F.scaled_dot_product_attention(
        torch.cat([query, constant.expand(*query.shape[:-1], -1)], -1),
        torch.cat([key, carried.expand(-1, key.shape[1], -1, -1)], -1),
        F.pad(value, (0, len(pieces) + idle)),
        attn_mask=None if attn_mask is None else attn_mask.to(query.dtype),
        dropout_p=dropout_p,
        scale=1.0 / math.sqrt(features),
    )
    return output[..., :features]


def key_bias(mixture: Mixture, noise: float) -> Float[Tensor, "batch components"]:
    """log w_i - ‖z_i‖² / 2 sqrt(d): what denoising attention adds to the dot products with the points z_i."""
    return log_weight_or_lowest(mixture) - to_compute(mixture.mean).square().sum(-1) / (2.0 * noise)


def log_weight_or_lowest(mixture: Mixture) -> Float[Tensor, "batch components"]:
    """log weight; where it is 0 or padding, so low that nothing is left of it, yet finite."""
    log_weight = to_compute(mixture.log_weight)
    return log_weight.masked_fill(~mixture.kept, -1e30)


def check_compat(compat: Compat | None) -> Compat | None:
    """`compat` if it is known."""
    if compat is not None:
        checks.one_of("compat", compat, ("v3", "v1"))
    return compat


def _weights(logits: Tensor, mixture: Mixture, attn_mask: Tensor | None, dropout_p: float) -> tuple[Tensor, Tensor]:
    """The softmax over components that are there and allowed; as it is, and with dropout."""
    allowed, bias = split_mask(attn_mask, False, logits)
    kept = mixture.kept[:, None, None]
    batch, heads, queries, components = logits.shape
    rows = DenseRows((batch, heads, queries, components), kept if allowed is None else kept & allowed)
    weights = rows.softmax(logits if bias is None else logits + bias)
    return weights, F.dropout(weights, dropout_p)


def _pieces(bias: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Numbers of `dtype` that sum to the bias."""
    highest = bias.detach().amax(-1, keepdim=True)
    bias = bias - highest  # the same for all keys: no weight changes, and what matters is near 0
    if dtype == bias.dtype:
        return [bias]
    bias = bias.clamp_min(torch.finfo(dtype).min / 2)
    pieces = []
    for _ in range(3):
        pieces.append(bias.to(dtype))
        bias = bias - pieces[-1].detach().to(bias.dtype)
    # the first alone carries the gradient: it is the bias's own
    return [pieces[0], *(piece.detach() for piece in pieces[1:])]
