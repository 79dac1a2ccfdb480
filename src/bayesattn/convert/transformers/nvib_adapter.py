"""NVIB in Hugging Face's encoders and encoder-decoders."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import nn

from bayesattn.convert.transformers.adapter import Converted, HuggingFaceAdapter, is_converted
from bayesattn.convert.transformers.latent import key_and_value
from bayesattn.convert.transformers.layer_sizes import sizes
from bayesattn.nvib import NVIB
from bayesattn.nvib.projected import ReadsLatent

_POSITIONS = ("position_embeddings", "position_bias")


class HuggingFaceNVIBAdapter(HuggingFaceAdapter):
    """As `HuggingFaceAdapter`, with an NVIB in place of a posterior: for attention whose keys and values are linear maps of one input."""

    template = NVIB

    @property
    def mixin(self) -> type[Converted]:
        return Denoising

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: layer for name, layer in super().find(model).items() if obstacle(layer) is None}

    def unsupported(self, model: nn.Module) -> dict[str, str]:
        reasons = super().unsupported(model)
        for name, layer in super().find(model).items():
            reason = obstacle(layer)
            if reason is not None:
                reasons[name] = reason
        return reasons

    def attach(self, layer: nn.Module, posterior: Any) -> None:
        if hasattr(layer, "nvib"):
            raise ValueError(
                f"{type(layer).__name__} already has an attribute 'nvib', which conversion would overwrite."
            )
        heads, head_dim = sizes(layer)  # pyright: ignore[reportGeneralTypeIssues]
        weight = next(layer.parameters())
        bound = posterior.bind(dim=heads * head_dim, num_heads=heads)
        layer.nvib = bound.to(weight.device, weight.dtype).train(layer.training)
        layer.__dict__["moments"] = None

    def revert_layer(self, layer: nn.Module) -> None:
        super().revert_layer(layer)
        del layer.__dict__["moments"]


class Denoising(ReadsLatent, Converted):
    """A layer that reads the latent of its NVIB layer."""

    part = "nvib"


def obstacle(layer: nn.Module) -> str | None:
    """Why this layer's attention cannot read a latent; None if it can."""
    if is_converted(layer):
        return None
    heads, head_dim = sizes(layer) or (0, 0)
    maps = key_and_value(layer)
    if maps is None:
        return "it has no two linear maps to keys and values, which NVIB's latent goes through"
    widths = {width for each in maps for width in (each.in_features, each.out_features)}
    if widths != {heads * head_dim}:
        return f"its keys and values are {sorted(widths)} wide, and NVIB's latent has one width, {heads * head_dim}"
    parameters = inspect.signature(layer.forward).parameters
    if any(name in parameters for name in _POSITIONS):
        return "its keys depend on positions (rotary, or a bias), and those of NVIB's latent have none"
    scaling = getattr(layer, "scaling", None)
    if scaling is not None and not torch.is_tensor(scaling) and not math.isclose(scaling, head_dim**-0.5, rel_tol=1e-6):
        return f"it scales scores by {scaling}, and denoising attention by 1 / sqrt({head_dim})"
    return None
