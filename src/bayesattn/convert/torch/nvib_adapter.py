"""NVIB in models made of `torch.nn.MultiheadAttention`: denoising attention with a bottleneck of its own in each layer."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

from bayesattn.convert.torch.adapter import TorchAdapter
from bayesattn.nvib import NVIB, DenoisingMultiheadAttention

_MARK = "_bayesattn_nvib"


class NVIBAdapter(TorchAdapter):
    """As `TorchAdapter`, with an NVIB in place of a posterior."""

    name = "torch.nn"
    template = NVIB

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: layer for name, layer in super().find(model).items() if _obstacle(layer) is None}

    def unsupported(self, model: nn.Module) -> dict[str, str]:
        refused = super().unsupported(model)
        for name, layer in super().find(model).items():
            obstacle = _obstacle(layer)
            if obstacle is not None:
                refused[name] = obstacle
        return refused

    def find_converted(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: module for name, module in model.named_modules() if hasattr(module, _MARK)}

    def convert_layer(self, layer: nn.Module, posterior: Any) -> None:
        layer.__class__ = DenoisingMultiheadAttention
        cast(DenoisingMultiheadAttention, layer).set_nvib(posterior)
        setattr(layer, _MARK, True)

    def revert_layer(self, layer: nn.Module) -> None:
        layer = cast(DenoisingMultiheadAttention, layer)
        for name in (_MARK, "nvib", "compat", "moments"):
            delattr(layer, name)
        layer._qkv_same_embed_dim = True
        cast(nn.Module, layer).__class__ = nn.MultiheadAttention


def _obstacle(layer: nn.Module) -> str | None:
    attention = cast(nn.MultiheadAttention, layer)
    if attention.in_proj_weight is None:
        return "its keys or values have another width than its queries, and NVIB has one latent for all"
    if attention.bias_k is not None or attention.add_zero_attn:
        return "add_bias_kv and add_zero_attn add keys that belong to no token, as NVIB's prior does already"
    return None
