"""`torch.vmap` that computes: products and attention of several networks as one, and no loops behind its back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_trying = threading.Lock()


@contextmanager
def without_loops() -> Iterator[None]:
    """Operations for which vmap would loop over what it vectorises, with a warning, raise instead.

    The switch is the process's, so each model is tried once, and one at a time.
    """
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    with _trying:
        before = functorch._is_vmap_fallback_enabled()
        functorch._set_vmap_fallback_enabled(False)
        try:
            yield
        finally:
            functorch._set_vmap_fallback_enabled(before)


class Grouped(TorchFunctionMode):
    """Inside `torch.vmap` over networks, in this thread alone: their linear layers are one batched product, and their attention is one of
    a larger batch, by torch's fused kernels. What these do not know is left to vmap.

    >>> weight, x = torch.randn(3, 5, 4), torch.randn(7, 4)
    >>> with Grouped():
    ...     y = torch.vmap(F.linear, in_dims=(None, 0))(x, weight)
    >>> torch.allclose(y[2], x @ weight[2].T, atol=1e-6)
    True
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        grouped = _GROUPED.get(func)
        return func(*args, **(kwargs or {})) if grouped is None else grouped(*args, **(kwargs or {}))


class WholeLinear(TorchFunctionMode):
    """Inside `torch.vmap`, in this thread alone: a linear layer adds its bias within its product, where vmap takes it apart.

    Of what is random, such as attention with dropout, it leaves to vmap to say what differs.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (_linear if func is F.linear else func)(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _Linear.apply(input, weight, bias)  # pyright: ignore[reportReturnType]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    options |= {"dropout_p": dropout_p, "is_causal": is_causal}
    if not query.dim() == key.dim() == value.dim() == 4:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, **options)
    return _Attention.apply(query, key, value, attn_mask, options)  # pyright: ignore[reportReturnType]


def _multi_head_attention(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward`: self-attention without weights is computed here, other kinds by torch, in plain operations."""
    given = dict(zip(_MULTI_HEAD_ARGUMENTS, args, strict=False)) | kwargs
    query = given["query"]
    plain = query is given["key"] is given["value"] and query.dim() == 3 and not given.get("need_weights", True)
    special = ("bias_k", "bias_v", "add_zero_attn", "use_separate_proj_weight", "static_k", "static_v", "is_causal")
    if not plain or any(given.get(name) is not None and given[name] is not False for name in special):
        asked = given.get("need_weights", True)
        averaged = given.get("average_attn_weights", True) and asked
        output, weights = F.multi_head_attention_forward(
            **given | {"need_weights": True, "average_attn_weights": averaged}
        )
        return output, weights if asked else None
    length, batch, size = query.shape
    heads = given["num_heads"]
    rows = query.transpose(0, 1)
    projected = _linear(rows, given["in_proj_weight"], given["in_proj_bias"])
    q, k, v = projected.unflatten(-1, (3, heads, size // heads)).permute(2, 0, 3, 1, 4).unbind(0)
    mask = given.get("attn_mask")
    if mask is not None and mask.dim() == 3:
        mask = mask.unflatten(0, (batch, heads))
    padding = given.get("key_padding_mask")
    if padding is not None:
        padding = _additive(padding, query.dtype).view(batch, 1, 1, length)
        mask = padding if mask is None else _additive(mask, query.dtype) + padding
    elif mask is not None and mask.dtype == torch.bool:
        mask = ~mask  # torch's multi-head attention marks what is left out
    dropout = given["dropout_p"] if given.get("training", True) else 0.0
    attended = _attention(q, k, v, mask, dropout)
    output = _linear(attended.transpose(1, 2).flatten(2), given["out_proj_weight"], given["out_proj_bias"])
    return output.transpose(0, 1), None


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)


_MULTI_HEAD_ARGUMENTS = (
    "query",
    "key",
    "value",
    "embed_dim_to_check",
    "num_heads",
    "in_proj_weight",
    "in_proj_bias",
    "bias_k",
    "bias_v",
    "add_zero_attn",
    "dropout_p",
    "out_proj_weight",
    "out_proj_bias",
)
_GROUPED: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head_attention,
}


class _WithRule(torch.autograd.Function):
    """A function that is there for its rule under vmap; without vmap it is never called with gradients."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("Grouped() is for what runs inside torch.vmap.")


class _Linear(_WithRule):
    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(input, weight, bias)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        input, weight, bias = args
        of_input, of_weight, of_bias = in_dims[:3]
        networks = info.batch_size
        if of_weight is None and of_bias is None:  # one layer for all
            assert of_input is not None
            return F.linear(input.movedim(of_input, 0), weight, bias), 0
        weights = _first(weight, of_weight, networks)
        biases = None if bias is None else _first(bias, of_bias, networks)
        outputs = weights.shape[1]
        if of_input is None:  # one input for all: one wide layer
            wide = F.linear(input, weights.flatten(0, 1), None if biases is None else biases.flatten())
            return wide.unflatten(-1, (networks, outputs)), wide.dim() - 1
        rows = input.movedim(of_input, 0)
        flat = rows.reshape(networks, -1, rows.shape[-1])
        transposed = weights.transpose(1, 2)
        product = (
            torch.bmm(flat, transposed) if biases is None else torch.baddbmm(biases.unsqueeze(1), flat, transposed)
        )
        return product.view(*rows.shape[:-1], outputs), 0


class _Attention(_WithRule):
    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, **options)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        q, k, v, mask, options = args
        networks = info.batch_size
        rows = [_first(tensor, of, networks) for tensor, of in zip((q, k, v), in_dims, strict=False)]
        batch = rows[0].shape[1]
        if mask is not None and (in_dims[3] is not None or mask.dim() > 2):
            mask = _first(mask, in_dims[3], networks)
            mask = mask.reshape(networks, *[1] * (5 - mask.dim()), *mask.shape[1:])
            mask = mask.expand(networks, batch, *mask.shape[2:]).flatten(0, 1)
        query, key, value = (each.flatten(0, 1) for each in rows)
        attended = F.scaled_dot_product_attention(query, key, value, mask, **options)
        return attended.unflatten(0, (networks, batch)), 0


def _first(tensor: Tensor, of_networks: int | None, networks: int) -> Tensor:
    """[networks, ...]"""
    return (
        tensor.unsqueeze(0).expand(networks, *tensor.shape) if of_networks is None else tensor.movedim(of_networks, 0)
    )
