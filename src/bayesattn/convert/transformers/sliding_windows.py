"""Longformer's attention (and LED's): a query sees the keys in a window around it and the global tokens, which see all keys.

The layer's own code has a softmax over windows laid out as diagonals. Here the same numbers are attention with a mask: on the kernels
memory stays linear in the length but for the mask, and time is that of full attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.attention import attend
from bayesattn.posteriors import Posterior
from bayesattn.support.annotations import Bool, Float

WINDOWED = ("LongformerSelfAttention", "LEDEncoderSelfAttention")
"""Names of the layers that this is for."""


def attend_in_windows(
    layer: Any,
    posterior: Posterior,
    hidden_states: Float[Tensor, "batch length dim"],
    attention_mask: Any = None,
    is_index_masked: Bool[Tensor, "batch length"] | None = None,
    is_index_global_attn: Bool[Tensor, "batch length"] | None = None,
    is_global_attn: bool | None = None,
    output_attentions: bool = False,
) -> tuple[Float[Tensor, "batch length dim"]]:
    """What the layer's own forward, whose signature this is, gives with plain attention."""
    if output_attentions:
        raise ValueError(
            f"output_attentions=True: {type(layer).__name__} with random weights has none in the layout of its windows. Use "
            "ba.attention_weights(model, …), which has them as [batch, heads, query, key]."
        )
    if attention_mask is None or is_index_masked is None or is_index_global_attn is None:
        raise ValueError(
            f"{type(layer).__name__} was called without attention_mask, is_index_masked or is_index_global_attn, which say who may see "
            "whom: call the model, which makes them, or pass them."
        )
    dropout = layer.dropout if layer.training else 0.0
    real, is_global = ~is_index_masked, is_index_global_attn & ~is_index_masked
    local = real & ~is_global

    position = torch.arange(hidden_states.shape[1], device=hidden_states.device)
    near = (position[:, None] - position).abs() <= layer.one_sided_attn_window_size
    seen = ((near & local[:, None, :]) | is_global[:, None, :]) & local[:, :, None]
    query, key, value = (_heads(layer, part(hidden_states)) for part in (layer.query, layer.key, layer.value))
    output = attend(query, key, value, posterior, seen[:, None], dropout_p=dropout, query_mask=local)
    if is_global_attn:
        output = _with_global_rows(layer, posterior, hidden_states, output, real, is_global, dropout)
    return (output.transpose(1, 2).flatten(2),)


def _with_global_rows(
    layer: Any,
    posterior: Posterior,
    hidden_states: Float[Tensor, "batch length dim"],
    output: Float[Tensor, "batch heads length head_dim"],
    real: Bool[Tensor, "batch length"],
    is_global: Bool[Tensor, "batch length"],
    dropout: float,
) -> Float[Tensor, "batch heads length head_dim"]:
    """The rows of global tokens, which have maps of their own, in their places."""
    most = int(is_global.sum(1).max())
    first = is_global.int().argsort(dim=1, descending=True, stable=True)[:, :most]  # the global positions, then others
    is_one = is_global.gather(1, first)
    rows = hidden_states.gather(1, first[..., None].expand(-1, -1, hidden_states.shape[-1]))
    query = _heads(layer, layer.query_global(rows))
    key, value = (_heads(layer, part(hidden_states)) for part in (layer.key_global, layer.value_global))
    seen = real[:, None, None, :] & is_one[:, None, :, None]
    found = attend(query, key, value, posterior, seen, dropout_p=dropout, query_mask=is_one)
    places = first[:, None, :, None].expand_as(found)
    here = is_one[:, None, :, None]
    return output.scatter(2, places, torch.where(here, found, output.gather(2, places)))


def _heads(layer: nn.Module, states: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch heads length head_dim"]:
    return states.unflatten(-1, (layer.num_heads, layer.head_dim)).transpose(1, 2)  # pyright: ignore[reportArgumentType]
