"""What every adapter does to a layer: give it a posterior of its own, and where needed a class of ours."""

from __future__ import annotations

from functools import cache
from typing import cast

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


def change_class(layer: nn.Module, mixin: type) -> None:
    """Put `mixin` before the layer's own class; the object, its parameters and its hooks stay."""
    layer.__class__ = _mixed(mixin, type(layer))


def restore_class(layer: nn.Module) -> None:
    """Undo `change_class`."""
    layer.__class__ = type(layer).__bases__[1]


@cache
def _mixed(mixin: type, cls: type) -> type[nn.Module]:
    made = type(f"Bayesian{cls.__name__}", (mixin, cls), {"__doc__": cls.__doc__})
    return cast(type[nn.Module], made)
