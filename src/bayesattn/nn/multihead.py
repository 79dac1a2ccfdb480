"""Multi-head attention with random weights, a drop-in for torch's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.attention import attend
from bayesattn.posteriors import Posterior, Softmax
from bayesattn.scopes.variable import PerThread

queries_are_padding = PerThread((None, None))
"""A layer, and which queries of the pass that it is in are padding: for cross-attention, which cannot know."""


def _padding_of(layer: MultiheadAttention) -> Tensor | None:
    told, padding = queries_are_padding.value
    return padding if told is layer else None


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with a posterior: same arguments, state dict, masks and results.

    Masks are torch's module masks: True = may *not* attend, or float, added to the scores. `need_weights=True` returns the weights
    as drawn. In self-attention with a `key_padding_mask` the padded positions count neither as keys nor as queries in the KL;
    for cross-attention, `query_padding_mask` says which queries are padding (True = padding).

    >>> import torch, bayesattn as ba
    >>> attention = ba.nn.MultiheadAttention(16, 4, batch_first=True, posterior=ba.Weibull(k=10.0))
    >>> x = torch.randn(2, 5, 16)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 5]))
    """

    posterior: Posterior

    def __init__(self, *args: Any, posterior: Posterior | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.set_posterior(posterior or Softmax())

    def _reset_parameters(self) -> None:
        """torch's; it decides by `_qkv_same_embed_dim`, which is False here whatever the parameters are, which weights to start anew."""
        before = self._qkv_same_embed_dim
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = before

    def set_posterior(self, posterior: Posterior) -> None:
        """Give this layer its own copy of `posterior`."""
        weight = self.out_proj.weight
        self.posterior = posterior.bind(num_heads=self.num_heads, head_dim=self.head_dim).to(
            weight.device, weight.dtype
        )
        self.posterior.train(self.training)
        # torch's encoder layers read this private flag and, where it is True, skip this module's forward in eval mode
        self._qkv_same_embed_dim = False

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        query_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's; `is_causal` without `attn_mask` masks the future."""
        if query.is_nested or key.is_nested or value.is_nested:
            raise TypeError("Nested tensors are not supported: pass padded tensors and key_padding_mask=.")
        if query.dim() not in (2, 3) or key.dim() != query.dim() or value.dim() != query.dim():
            raise ValueError(
                f"query, key and value must all have 3 dimensions, or 2 without a batch; got {query.dim()}, {key.dim()} and {value.dim()}."
            )
        is_self_attention = query is key
        batched = query.dim() == 3
        if not batched:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)

        q, k, v = self._project(query, key, value)
        mask = self._merge_masks(attn_mask, key_padding_mask, q, k.shape[2])
        if query_padding_mask is None:
            query_padding_mask = key_padding_mask if is_self_attention else _padding_of(self)
        attended = attend(
            q,
            k,
            v,
            self.posterior,
            mask,
            is_causal=is_causal and attn_mask is None,
            dropout_p=self.dropout if self.training else 0.0,
            query_mask=None if query_padding_mask is None else ~is_padding(query_padding_mask),
            need_weights=need_weights,
        )
        output, weights = attended if isinstance(attended, tuple) else (attended, None)
        # length first in memory, as torch lays it out: dropout after this layer then drops what it drops there
        output = self.out_proj(output.permute(2, 0, 1, 3).flatten(2))
        shown = weights.mean(1) if weights is not None and average_attn_weights else weights
        if not batched:
            return output.squeeze(1), None if shown is None else shown.squeeze(0)
        return (output.transpose(0, 1) if self.batch_first else output), shown

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as [batch, heads, length, head_dim], with torch's extra keys appended."""
        q, k, v = self._project_inputs(query, key, value)
        batch = q.shape[0]
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.to(k.dtype).expand(batch, 1, -1)], 1)
            v = torch.cat([v, self.bias_v.to(v.dtype).expand(batch, 1, -1)], 1)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        heads = (self.num_heads, self.head_dim)
        return (
            q.unflatten(-1, heads).transpose(1, 2),
            k.unflatten(-1, heads).transpose(1, 2),
            v.unflatten(-1, heads).transpose(1, 2),
        )

    def _project_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three linear maps of the inputs."""
        packed = self.in_proj_weight
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if packed is None else packed.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return q, k, v

    def _merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, keys: int
    ) -> Tensor | None:
        """Torch's two module masks as one mask of `attend`, with the extra keys visible."""
        batch, heads, queries, _ = q.shape
        extra = int(self.bias_k is not None) + int(self.add_zero_attn)
        merged = None
        if attn_mask is not None:
            shapes = ((queries, keys - extra), (batch * heads, queries, keys - extra))
            if tuple(attn_mask.shape) not in shapes:
                raise ValueError(f"attn_mask must have shape {shapes[0]} or {shapes[1]}, got {tuple(attn_mask.shape)}.")
            merged = attn_mask.view(-1, heads if attn_mask.dim() == 3 else 1, queries, keys - extra)
            merged = additive_mask("attn_mask", merged, q.dtype)
        if key_padding_mask is not None:
            if tuple(key_padding_mask.shape) != (batch, keys - extra):
                raise ValueError(
                    f"key_padding_mask must have shape (batch, key) = {(batch, keys - extra)}, got {tuple(key_padding_mask.shape)}."
                )
            padding = additive_mask("key_padding_mask", key_padding_mask[:, None, None, :], q.dtype)
            merged = padding if merged is None else merged + padding
        return merged if merged is None or extra == 0 else F.pad(merged, (0, extra))


def is_padding(padding_mask: Tensor) -> Tensor:
    """True where a module mask (boolean, or additive float) says padding."""
    return padding_mask if padding_mask.dtype == torch.bool else padding_mask == float("-inf")


def additive_mask(name: str, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A module mask (True = may not attend) as an additive one."""
    if mask.is_floating_point():
        return mask
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} must be boolean (True = may not attend, as in torch's modules) or float, got {mask.dtype}: use {name}.bool()."
        )
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))
