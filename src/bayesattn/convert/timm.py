"""timm: vision transformers whose attention calls `F.scaled_dot_product_attention`."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesattn.attention import attend
from bayesattn.convert.adapter import Adapter
from bayesattn.convert.attach import attach_posterior, change_class, restore_class
from bayesattn.posteriors import Posterior


class TimmAdapter(Adapter):
    """Runs the layer's own forward with `attend` in the place of torch's fused attention.

    timm marks an attention layer that has that path with `fused_attn`; q/k norms, rotary embeddings, gates and
    relative position biases around it stay timm's.
    """

    name = "timm (layers with fused attention: ViT, DeiT and their kin)"

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        return {
            name: module
            for name, module in model.named_modules()
            if _is_attention(module) and _reason_against(module) is None
        }

    def unsupported(self, model: nn.Module) -> dict[str, str]:
        return {
            name: reason
            for name, module in model.named_modules()
            if _is_attention(module) and (reason := _reason_against(module)) is not None
        }

    def find_converted(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: module for name, module in model.named_modules() if isinstance(module, _Redirected)}

    def convert_layer(self, layer: nn.Module, posterior: Posterior) -> None:
        attach_posterior(layer, posterior, num_heads=layer.num_heads, head_dim=_head_dim(layer))  # pyright: ignore[reportArgumentType]
        layer.__dict__["_fused_before"] = layer.fused_attn
        layer.__dict__["fused_attn"] = True
        change_class(layer, _Redirected)

    def revert_layer(self, layer: nn.Module) -> None:
        restore_class(layer)
        layer.__dict__["fused_attn"] = layer.__dict__.pop("_fused_before")
        del layer.posterior


def _is_attention(module: nn.Module) -> bool:
    of_timm = type(module).__module__.startswith("timm.")
    return of_timm and (hasattr(module, "fused_attn") or (hasattr(module, "num_heads") and hasattr(module, "scale")))


def _reason_against(module: nn.Module) -> str | None:
    if hasattr(module, "window_area") or hasattr(module, "ws"):
        return f"{type(module).__name__} of timm attends inside windows, so that its batch is one of windows and not of examples"
    forward = type(module).forward
    if "scaled_dot_product_attention" not in forward.__code__.co_names:
        return f"{type(module).__name__} of timm does not call F.scaled_dot_product_attention in its forward"
    if not isinstance(getattr(module, "num_heads", None), int) or _head_dim(module) is None:
        return f"{type(module).__name__} of timm does not say how many heads it has, and of what size"
    return None


def _head_dim(module: nn.Module) -> int | None:
    if isinstance(getattr(module, "head_dim", None), int):
        return module.head_dim  # pyright: ignore[reportReturnType]
    scale = getattr(module, "scale", None)
    return round(scale**-2) if isinstance(scale, float) else None


class _Redirected(nn.Module):
    """Put before a timm layer's class: its forward, with the fused attention redirected."""

    posterior: Posterior

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with _Redirection(self.posterior) as redirection:
            output = super().forward(*args, **kwargs)
        if redirection.calls != 1:
            raise RuntimeError(
                f"The forward of {type(self).__name__} made {redirection.calls} calls of F.scaled_dot_product_attention, not one: "
                "this layer cannot be Bayesian. Revert it, and choose others with where=."
            )
        return output


class _Redirection(TorchFunctionMode):
    """Inside this block, `F.scaled_dot_product_attention` is `attend` with a posterior."""

    def __init__(self, posterior: Posterior):
        super().__init__()
        self.posterior = posterior
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.calls += 1
        return _attend(self.posterior, *args, **(kwargs or {}))


def _attend(
    posterior: Posterior,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The signature of `F.scaled_dot_product_attention`."""
    return attend(query, key, value, posterior, attn_mask, is_causal, scale, dropout_p=dropout_p, enable_gqa=enable_gqa)
