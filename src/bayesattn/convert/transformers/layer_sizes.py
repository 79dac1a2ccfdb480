"""Heads and head size of an attention layer, which transformers' classes keep under many names, or not at all."""

from __future__ import annotations

from typing import Any

from torch import nn

_HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "num_attn_heads", "heads")
_HEAD_DIMS = (
    "qk_head_dim",
    "head_dim",
    "attention_head_size",
    "key_value_proj_dim",
    "d_head",
    "head_size",
    "dim_head",
    "d_kv",
    "key_dim",
)
_WIDTHS = ("internal_dim", "all_head_size", "split_size", "embed_dim", "hidden_size", "dim", "d_model")
"""All heads together."""
_OUTPUTS = ("proj", "out_proj", "o_proj", "dense")
"""The linear map that takes all heads together."""


def sizes(layer: nn.Module) -> tuple[int, int] | None:
    """Heads and head size; None if the layer and its config do not say."""
    heads, head_dim = _attribute(layer, _HEADS), _attribute(layer, _HEAD_DIMS)
    if heads is None:
        return None
    if head_dim is None:
        width = _attribute(layer, _WIDTHS) or _width_of_output(layer)
        head_dim = None if width is None or width % heads else width // heads
    return None if head_dim is None else (heads, head_dim)


def _attribute(layer: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of these that the layer has, or else its config."""
    owners: tuple[Any, ...] = (layer, getattr(layer, "config", None))
    found = (getattr(owner, name, None) for owner in owners for name in names)
    return next((size for size in found if isinstance(size, int) and not isinstance(size, bool) and size > 0), None)


def _width_of_output(layer: nn.Module) -> int | None:
    maps = (getattr(layer, name, None) for name in _OUTPUTS)
    return next((each.in_features for each in maps if isinstance(each, nn.Linear)), None)
