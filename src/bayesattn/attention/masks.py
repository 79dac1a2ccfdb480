"""Masks as `F.scaled_dot_product_attention` means them, checked and taken apart.

A boolean mask says True where a query may attend. A float mask is added to the scores: where it is -inf, or as low as
its dtype goes (Hugging Face writes finfo.min), it blocks; elsewhere it is a bias, part of the scores like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.support.annotations import Bool, Float, Int


def may_attend(mask: Tensor) -> Bool[Tensor, "..."]:
    """True where a mask does not block: a float mask blocks from half of its dtype's lowest value down.

    NaN blocks nothing: it is a bias like any other.
    """
    return mask if mask.dtype == torch.bool else ~(mask <= torch.finfo(mask.dtype).min / 2)


def split_mask(
    attn_mask: Tensor | None,
    is_causal: bool,
    scores: Float[Tensor, "batch heads query key"],
    key_lengths: Int[Tensor, " batch"] | None = None,
) -> tuple[Bool[Tensor, "#batch #heads #query #key"] | None, Float[Tensor, "#batch #heads #query #key"] | None]:
    """The pairs that are allowed, and the bias to add to the scores; None where there is nothing to say."""
    allowed = bias = None
    if attn_mask is not None:
        mask = _broadcastable(attn_mask, scores)
        allowed = may_attend(mask)
        if mask.dtype != torch.bool:
            bias = mask.masked_fill(~allowed, 0.0).to(scores.dtype)
    if is_causal:
        query, key = scores.shape[-2:]
        causal = torch.ones(query, key, dtype=torch.bool, device=scores.device).tril()[None, None]
        allowed = causal if allowed is None else allowed & causal
    if key_lengths is not None:
        check_key_lengths(key_lengths, scores)
        inside = torch.arange(scores.shape[-1], device=scores.device) < key_lengths.view(-1, 1, 1, 1)
        allowed = inside if allowed is None else allowed & inside
    if allowed is None and scores.shape[-1] == 0:
        allowed = torch.ones(
            1, 1, 1, 0, dtype=torch.bool, device=scores.device
        )  # rows without keys, which a mask tells
    return allowed, bias


def check_query_mask(query_mask: Tensor | None, scores: Float[Tensor, "batch heads query key"]) -> Tensor | None:
    """`query_mask` if it is a boolean [batch, query]."""
    if query_mask is None:
        return None
    wanted = (scores.shape[0], scores.shape[2])
    if query_mask.dtype != torch.bool or tuple(query_mask.shape) != wanted:
        raise ValueError(
            f"query_mask must be a boolean tensor of shape (batch, query) = {wanted}, True for queries that count in the KL; "
            f"got {query_mask.dtype} of shape {tuple(query_mask.shape)}."
        )
    return query_mask


def check_key_lengths(key_lengths: Tensor | None, scores: Tensor) -> None:
    """Raise unless `key_lengths` holds one whole number for each example."""
    if key_lengths is None:
        return
    is_whole = not key_lengths.is_floating_point() and key_lengths.dtype != torch.bool
    if not is_whole or tuple(key_lengths.shape) != (scores.shape[0],):
        raise ValueError(
            f"key_lengths must hold one whole number for each of the {scores.shape[0]} examples: the number of keys before the padding; "
            f"got {key_lengths.dtype} of shape {tuple(key_lengths.shape)}."
        )


def _broadcastable(attn_mask: Tensor, scores: Tensor) -> Tensor:
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise TypeError(
            f"attn_mask must be boolean (True = may attend) or float (added to the scores), got {attn_mask.dtype}. "
            "A mask of 0 and 1 becomes boolean with attn_mask.bool()."
        )
    wanted = tuple(scores.shape)
    shape = tuple(attn_mask.shape)
    fits = len(shape) <= 4 and all(
        size in (1, full) for size, full in zip(reversed(shape), reversed(wanted), strict=False)
    )
    if not fits:
        raise ValueError(
            f"attn_mask of shape {shape} does not broadcast to the scores' (batch, heads, query, key) = {wanted}. "
            "A key-padding mask [batch, key] becomes mask[:, None, None, :]."
        )
    return attn_mask.view((1,) * (4 - len(shape)) + shape)
