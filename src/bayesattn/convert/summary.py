"""`summary`: every attention layer of a model, and what it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from bayesattn.convert.adapter import Adapter
from bayesattn.convert.attach import active_part
from bayesattn.convert.conversion import ADAPTERS, refusals
from bayesattn.nvib import NVIB
from bayesattn.posteriors import Posterior

State = Literal["converted", "left as it was", "cannot be converted"]


@dataclass(frozen=True)
class AttentionLayer:
    """A layer that does attention."""

    name: str
    kind: str
    """The name of its class."""
    state: State
    detail: str
    """What it was converted to, or why it cannot be."""

    def __str__(self) -> str:
        return f"{self.name or '(the model)'} ({self.kind}): {self.state}{self.detail and f', {self.detail}'}"


@dataclass(frozen=True)
class Summary:
    """The attention layers of a model, in its order."""

    layers: list[AttentionLayer]

    def of(self, state: State) -> list[AttentionLayer]:
        """The layers of one state."""
        return [layer for layer in self.layers if layer.state == state]

    def __str__(self) -> str:
        counts = f"{len(self.of('converted'))} of {len(self.layers)} attention layers are Bayesian."
        return "\n".join([*map(str, self.layers), counts])


def summary(model: nn.Module) -> Summary:
    """Every layer of `model` that does attention: converted, left as it was, or such that it cannot be converted.

    Attention is known by what a layer's code does, so what no adapter knows is listed too.

    >>> import torch, bayesattn as ba
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    >>> model = ba.convert(torch.nn.TransformerEncoder(layer, 2), ba.Weibull(k=10.0), where="last 1 layers")
    >>> print(ba.summary(model))
    layers.0.self_attn (MultiheadAttention): left as it was
    layers.1.self_attn (MultiheadAttention): converted, Weibull(k=10.0, kl_scores='normalised')
    1 of 2 attention layers are Bayesian.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    adapters: list[Adapter] = [adapter for adapter in ADAPTERS if adapter.template is Posterior]
    found: dict[str, nn.Module] = {}
    for adapter in adapters:
        found.update(adapter.find(model))
    refused = refusals(model, adapters, found)
    layers: list[AttentionLayer] = []
    for name, module in model.named_modules():
        parts = [
            part
            for part in map(active_part, (module._modules.get("posterior"), module._modules.get("nvib")))
            if isinstance(part, (Posterior, NVIB))
        ]
        kind = type(module).__name__
        if parts:
            layers.append(AttentionLayer(name, kind, "converted", _words(parts[0])))
        elif name in refused:
            layers.append(AttentionLayer(name, kind, "cannot be converted", refused[name]))
        elif name in found:
            layers.append(AttentionLayer(name, kind, "left as it was", ""))
    return Summary(layers)


def _words(part: nn.Module) -> str:
    """A posterior in one line: its name, and its options that are plain values."""
    options = part.extra_repr()
    return f"{type(part).__name__}({options})"
