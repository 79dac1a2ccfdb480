"""`attend`: the one place where attention happens."""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn import kernels
from bayesattn.attention.drawing import check_posterior, draw_weights
from bayesattn.attention.masks import check_key_lengths, check_query_mask, split_mask
from bayesattn.numerics.counter_noise import CounterNoise, Noise, NoiseGenerator, draw_seed
from bayesattn.numerics.precision import compute_dtype, to_compute
from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.rows import DenseRows
from bayesattn.scopes import modes, recording
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Int


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    posterior: Posterior,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    query_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    generator: torch.Generator | None = None,
    backend: kernels.Backend | None = None,
    need_weights: Literal[False] = False,
) -> Tensor: ...
@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    posterior: Posterior,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    query_mask: Tensor | None = None,
    key_lengths: Tensor | None = None,
    generator: torch.Generator | None = None,
    backend: kernels.Backend | None = None,
    need_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attend(
    query: Float[Tensor, "*batch query features"],
    key: Float[Tensor, "*key_batch key features"],
    value: Float[Tensor, "*key_batch key value"],
    posterior: Posterior,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    query_mask: Bool[Tensor, "batch query"] | None = None,
    key_lengths: Int[Tensor, " batch"] | None = None,
    generator: torch.Generator | None = None,
    backend: kernels.Backend | None = None,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention with random weights; `F.scaled_dot_product_attention` with a posterior.

    Args:
        query, key, value: [batch, heads, length, features], or [batch, length, features] for one head.
        posterior: the distribution of the weights. In training and inside `sampling()` they are drawn, else they are the point
            estimate. Its KL goes to the open `record()`.
        attn_mask: True = may attend, or float, added to the scores; broadcastable to [batch, heads, query, key]. -inf and the
            dtype's lowest value block. A query that may attend to nothing gets zeros.
        is_causal: query i may attend to keys 0 … i only; may be combined with `attn_mask`.
        scale: factor of the dot products, by default 1/sqrt(features).
        softcap: c, for scores of c · tanh(scores / c) as in Gemma 2, before any mask is added. Computed on `reference`.
        dropout_p: dropout of the normalised weights, applied whenever it is above 0, as in torch.
        enable_gqa: allow fewer key heads than query heads; each serves a group of neighbouring query heads.
        query_mask: [batch, query], False for padded queries: they get an output, but no KL.
        key_lengths: [batch], whole numbers: keys from this position on are padding. As a mask, without a mask tensor.
        generator: where the posterior's noise comes from; by default that of `sampling(generator=...)`, else torch's own.
        backend: "auto", "native", "triton", "chunked" or "reference": how it is computed, not what. By default as `kernels.use` says, else
            "auto"; `kernels.explain` tells which one that is, and why.
        need_weights: also return the weights [batch, heads, query, key] as drawn, before dropout.

    >>> import torch, bayesattn as ba
    >>> q, k, v = (torch.randn(2, 4, 6, 8) for _ in range(3))
    >>> output, weights = ba.attend(q, k, v, ba.Weibull(k=10.0), is_causal=True, need_weights=True)
    >>> bool((weights.triu(1) == 0).all())
    True
    """
    check_posterior(posterior)
    _check_inputs(query, key, value, enable_gqa)
    one_head = query.dim() == 3
    if one_head:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(1)
    factor = query.shape[-1] ** -0.5 if scale is None else checks.finite("scale", scale)
    if softcap is not None:
        checks.positive("softcap", softcap)
    checks.fraction("dropout_p", dropout_p)
    choice = kernels.choose(
        backend,
        query,
        key,
        value,
        posterior,
        attn_mask=attn_mask,
        need_weights=need_weights or modes.is_watched(),
        softcap=softcap,
        dropout_p=dropout_p,
    )
    masks = _Masks(attn_mask, is_causal, query_mask, key_lengths)
    if choice.backend != "reference":
        output, weights = (
            _fused(query, key, value, posterior, masks, factor, dropout_p, generator, choice.backend),
            None,
        )
    else:
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = _dot_products(query, key, factor, softcap)
        output, weights = _from_scores(scores, key, value, posterior, masks, dropout_p, generator)
    if one_head:
        output, weights = output.squeeze(1), None if weights is None else weights.squeeze(1)
    return (output, weights) if need_weights else output  # pyright: ignore[reportReturnType]


def attend_scores(
    scores: Float[Tensor, "batch heads query key"],
    key: Float[Tensor, "batch heads key features"],
    value: Float[Tensor, "batch heads key value"],
    posterior: Posterior,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    dropout_p: float = 0.0,
    query_mask: Bool[Tensor, "batch query"] | None = None,
    key_lengths: Int[Tensor, " batch"] | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "batch heads query value"], Float[Tensor, "batch heads query key"]]:
    """Attention from scores of any kind (dot products, additive, …): the values' average, and the weights as drawn.

    The noise, the weights and the KL are computed in float32 or better whatever the dtype of the inputs.
    """
    check_posterior(posterior)
    checks.fraction("dropout_p", dropout_p)
    masks = _Masks(attn_mask, is_causal, query_mask, key_lengths)
    return _from_scores(scores, key, value, posterior, masks, dropout_p, generator)


def weights_of_scores(
    scores: Float[Tensor, "batch heads query key"],
    key: Float[Tensor, "batch heads key features"],
    posterior: Posterior,
    allowed: Bool[Tensor, "#batch #heads #query #key"] | None = None,
    *,
    query_mask: Bool[Tensor, "batch query"] | None = None,
) -> Float[Tensor, "batch heads query key"]:
    """The weights alone, in float32 or better, of scores that have their biases: what stands in for a softmax over the keys."""
    check_posterior(posterior)
    scores = to_compute(scores)
    rows = DenseRows(tuple(scores.shape), allowed, check_query_mask(query_mask, scores))  # pyright: ignore[reportArgumentType]
    return draw_weights(rows.fill_blocked(scores, 0.0), key, rows, posterior, _noise(posterior, None, 0.0))


class _Masks(NamedTuple):
    """The masks as the caller gave them."""

    attn_mask: Tensor | None
    is_causal: bool
    query_mask: Tensor | None
    key_lengths: Tensor | None


def _from_scores(
    scores: Tensor,
    key: Tensor,
    value: Tensor,
    posterior: Posterior,
    masks: _Masks,
    dropout_p: float,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """The definition, in plain torch, from arguments that have been checked."""
    scores = to_compute(scores)
    allowed, bias = split_mask(masks.attn_mask, masks.is_causal, scores, masks.key_lengths)
    rows = DenseRows(tuple(scores.shape), allowed, check_query_mask(masks.query_mask, scores))  # pyright: ignore[reportArgumentType]
    if bias is not None:
        scores = scores + bias
    scores = rows.fill_blocked(scores, 0.0)
    noise = _noise(posterior, generator, dropout_p)
    weights = draw_weights(scores, key, rows, posterior, noise).to(value.dtype)
    if dropout_p and isinstance(noise, CounterNoise):
        return (weights * noise.kept(weights, dropout_p) / (1.0 - dropout_p)) @ value, weights
    return F.dropout(weights, dropout_p) @ value, weights


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    posterior: Posterior,
    masks: _Masks,
    factor: float,
    dropout_p: float,
    generator: torch.Generator | None,
    backend: str,
) -> Tensor:
    """The same by a kernel, which never makes the scores."""
    # stands for the scores: their shape, dtype and device in one number
    pairs = query.new_empty((), dtype=compute_dtype(query.dtype)).expand(*query.shape[:3], key.shape[2])
    check_key_lengths(masks.key_lengths, pairs)
    allowed, bias = split_mask(masks.attn_mask, False, pairs)
    counted = check_query_mask(masks.query_mask, pairs)
    noise = _noise(posterior, generator, dropout_p)
    with_kl = recording.kl_is_wanted()
    with torch.autocast(query.device.type, enabled=False):
        fused = kernels.attend_fused(
            query if backend == "native" else to_compute(query),
            key if backend == "native" else to_compute(key),
            value if backend == "native" else to_compute(value),
            posterior.fused_form(key, query.shape[2], with_kl),
            kernels.Masks(allowed, masks.key_lengths, masks.is_causal, query.shape[2], key.shape[2]),
            bias,
            backend=backend,
            scale=factor,
            noise=noise if isinstance(noise, CounterNoise) else None,
            with_noise=modes.draws_now(posterior),
            with_kl=with_kl,
            dropout_p=dropout_p,
            counted=counted,
        )
    if fused.recorded is not None:
        kl, elements, rows = fused.recorded
        recording.add_local(kl, elements, rows, rows / query.shape[1], posterior, are_attention_weights=True)
    return fused.output.to(value.dtype)


def _dot_products(query: Tensor, key: Tensor, factor: float, softcap: float | None) -> Tensor:
    if query.dtype == torch.float16:
        # scores and the gradients of the KL outgrow float16 long before they mean anything unusual
        query, key = to_compute(query), to_compute(key)
    scores = (query * factor) @ key.transpose(-2, -1)
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def _noise(posterior: Posterior, generator: torch.Generator | None, dropout_p: float) -> Noise:
    """Where the noise of this call comes from: a counter for a posterior that takes one, else torch's generator."""
    kind: NoiseGenerator = modes.as_in_first_run("kind of noise", kernels.noise_generator())
    source = modes.current_generator(generator)
    if not posterior.counter_noise or not (modes.draws_now(posterior) or dropout_p):
        return source
    return CounterNoise(draw_seed(source), kind)


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if query.dim() not in (3, 4) or key.dim() != query.dim() or value.dim() != query.dim():
        raise ValueError(
            f"query, key and value must all be [batch, heads, length, features], or all [batch, length, features]; got {shapes}."
        )
    if not query.is_floating_point() or query.dtype != key.dtype or query.dtype != value.dtype:
        raise TypeError(
            f"query, key and value must have one floating dtype; got {query.dtype}, {key.dtype} and {value.dtype}."
        )
    if query.shape[0] != key.shape[0] or key.shape[:-1] != value.shape[:-1]:
        raise ValueError(f"The batch sizes, and the lengths and heads of key and value, must agree; got {shapes}.")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have the same number of features; got {shapes}.")
    if query.dim() == 4 and query.shape[1] != key.shape[1]:
        if not enable_gqa:
            raise ValueError(
                f"query has {query.shape[1]} heads, key {key.shape[1]}: pass enable_gqa=True for grouped-query heads."
            )
        if query.shape[1] % key.shape[1]:
            raise ValueError(f"With enable_gqa the query heads must be a multiple of the key heads; got {shapes}.")
