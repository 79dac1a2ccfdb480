"""Which parameters of a network: the `where=` argument of this package."""

from __future__ import annotations

from torch import nn

from bayesattn import nn as attention_modules
from bayesattn.convert.conversion import ADAPTERS
from bayesattn.support.selection import Where, select


def choose_layers(model: nn.Module, where: Where) -> dict[str, nn.Module]:
    """The chosen modules that have parameters of their own, by name ("" is the model itself), in the order of the model.

    `where` is None or "all", "attention" (every attention layer and what is inside it), a predicate of (name, module), an index,
    "last 2 layers", a name, a pattern ("encoder.*"), or a list of those. A name stands for all that is inside it too.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    layers = {name: module for name, module in model.named_modules() if has_own_parameters(module)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameters.")
    if where is None or (where == "all" and "all" not in layers):
        return layers
    if where == "attention" and "attention" not in dict(model.named_modules()):
        where = _attention_layers(model)
    if callable(where) or isinstance(where, int):
        return select(layers, where, kind="layers")
    names = [where] if isinstance(where, str) else list(where)
    holders = [name for name, _ in model.named_modules() if name and name in names]  # blocks, with all inside them
    chosen = {name for name in layers if any(name == holder or name.startswith(f"{holder}.") for holder in holders)}
    for other in names:
        if other not in holders:
            chosen |= set(select(layers, other, kind="layers"))
    return {name: layer for name, layer in layers.items() if name in chosen}


def has_own_parameters(module: nn.Module) -> bool:
    """Whether it holds parameters itself and not only in its parts."""
    return any(True for _ in module.parameters(recurse=False))


def _attention_layers(model: nn.Module) -> list[str]:
    """The names of the attention layers: those that `ba.convert` knows or has converted, and ours."""
    ours = (attention_modules.MultiheadAttention, attention_modules.AdditiveAttention, attention_modules.GraphAttention)
    found = {name for name, module in model.named_modules() if isinstance(module, (nn.MultiheadAttention, *ours))}
    for adapter in ADAPTERS:
        found |= set(adapter.find(model)) | set(adapter.find_converted(model))
    if not found:
        raise ValueError(
            f"where='attention', but {type(model).__name__} has no attention layer that is known: name its layers instead."
        )
    return sorted(found)
