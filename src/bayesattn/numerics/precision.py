"""Casts from a model's dtype to the one in which noise and KL are computed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or better if the model is better."""
    return torch.promote_types(dtype, torch.float32)


def to_compute(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """`tensor` in the compute dtype; on the way back a finite gradient is clamped to what its own dtype can hold.

    Without the clamp, gradients of a KL that are ordinary numbers in float32 are infinite in float16.
    """
    target = compute_dtype(tensor.dtype) if dtype is None else dtype
    if tensor.dtype == target:
        return tensor
    if tensor.dtype == torch.float16:
        cast = _SaturatingCast if torch.compiler.is_compiling() else _SaturatingCastForwardToo
        return cast.apply(tensor, target)  # pyright: ignore[reportReturnType]
    return tensor.to(target)


def to_dtype_of_input(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """A gradient in the dtype of what it belongs to: in float16, what is finite stays finite."""
    if dtype != torch.float16:
        return gradient.to(dtype)
    limits = torch.finfo(dtype)
    clamped = gradient.clamp(limits.min, limits.max)
    # what float32 cannot hold either stays infinite: a GradScaler must see it
    return torch.where(gradient.isinf(), gradient, clamped).to(dtype)


def linear_in_dtype_of(x: Tensor, layer: nn.Linear) -> Tensor:
    """The layer computed in the dtype of `x`, whatever the dtype of its weights."""
    return F.linear(x, to_compute(layer.weight, x.dtype), to_compute(layer.bias, x.dtype))


class _SaturatingCast(torch.autograd.Function):
    @staticmethod
    def forward(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return tensor.to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.dtype, ctx.target = inputs[0].dtype, inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return to_dtype_of_input(gradients[0], ctx.dtype), None


class _SaturatingCastForwardToo(_SaturatingCast):
    """The same with a forward derivative, which torch.compile does not take, and for torch.func."""

    generate_vmap_rule = True

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return tangents[0].to(ctx.target)
