"""What every adapter does to a layer: give it a posterior of its own, and where needed a class of ours."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from torch import nn

from bayesattn.posteriors import Posterior


def attach_posterior(layer: nn.Module, posterior: Posterior, *, num_heads: int, head_dim: int) -> None:
    """Give `layer` its own copy of `posterior` as a submodule, on the layer's device, in its dtype and mode."""
    if hasattr(layer, "posterior"):
        raise ValueError(
            f"{type(layer).__name__} already has an attribute 'posterior', which conversion would overwrite: "
            "revert it first, or choose other layers with where=."
        )
    bound = posterior.bind(num_heads=num_heads, head_dim=head_dim)
    weight = next((weight for weight in layer.parameters() if weight.is_floating_point()), None)
    if weight is not None:
        # while transformers loads a model, what is made is on the device meta, but for weights that were made in an old way
        is_loading = any(parameter.is_meta for parameter in bound.parameters())
        bound.to("meta" if is_loading else weight.device, weight.dtype)
    layer.posterior = bound.train(layer.training)


def active_part(part: Any) -> Any:
    """What a layer was converted to; where PEFT has wrapped it (`modules_to_save`), the copy of the active adapter."""
    copies: Any = part._modules.get("modules_to_save") if isinstance(part, nn.Module) else None
    if copies is None:
        return part
    active: Any = () if part.disable_adapters else part.active_adapters
    return next((copies[name] for name in active if name in copies), part.original_module)


def posterior_of(layer: nn.Module) -> Posterior:
    """The posterior that a converted layer draws from."""
    return active_part(layer._modules["posterior"])


def change_class(layer: nn.Module, mixin: type) -> None:
    """Put `mixin` before the layer's own class; the object, its parameters and its hooks stay."""
    layer.__class__ = _mixed(mixin, type(layer))


def restore_class(layer: nn.Module) -> None:
    """Undo `change_class`."""
    layer.__class__ = type(layer).__bases__[1]


@cache
def _mixed(mixin: type, cls: type) -> type[nn.Module]:
    attributes = {"__doc__": cls.__doc__, "__reduce_ex__": _reduce, "_made_of": (mixin, cls)}
    made = type(f"Bayesian{cls.__name__}", (mixin, cls), attributes)
    return cast(type[nn.Module], made)


def _reduce(layer: Any, protocol: Any) -> tuple[Any, ...]:
    """How a layer is pickled, and copied: its class is in no module, but those that it was made of are."""
    return _empty, layer._made_of, layer.__getstate__()


def _empty(mixin: type, cls: type) -> nn.Module:
    made = _mixed(mixin, cls)
    return made.__new__(made)
