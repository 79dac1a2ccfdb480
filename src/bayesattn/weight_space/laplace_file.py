"""A Laplace posterior as a file: it is no part of the state dict, and costs a pass over the training data to make again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from bayesattn.support import checks, tensor_file
from bayesattn.weight_space.curvature import Output
from bayesattn.weight_space.laplace import DiagonalPosterior, FullPosterior, LinearisedNetwork, linearise
from bayesattn.weight_space.network import ParameterVector

Model = TypeVar("Model", bound=nn.Module)

FILE = "laplace.pt"
_KIND = "bayesattn Laplace posterior 1"
_TENSORS = {"diagonal": ("diagonal",), "full": ("values", "vectors")}
"""Structure → what its posterior is made of."""


def save_laplace(model: nn.Module, path: str | Path) -> Path:
    """Write the Laplace posterior of a model to a file, or as laplace.pt into a folder. The model itself is saved as ever."""
    if not isinstance(model, LinearisedNetwork):
        raise TypeError(f"{type(model).__name__} has no Laplace approximation: make it with ba.weight_space.laplace.")
    posterior = model.laplace_posterior
    structure = "full" if isinstance(posterior, FullPosterior) else "diagonal"
    state: dict[str, Any] = {
        "structure": structure,
        "tensors": {name: getattr(posterior, name).cpu() for name in _TENSORS[structure]},
        "prior_precision": float(posterior.prior_precision),
        "likelihood": model.laplace_likelihood,
        "layers": sorted({layer for owners in model.laplace_parameters.owners.values() for layer, _ in owners}),
        "weights": tensor_file.fingerprint(model),
    }
    return tensor_file.write(path, FILE, _KIND, state)


def load_laplace(model: Model, path: str | Path, *, output: Output | None = None) -> Model:
    """Put the posterior that `save_laplace` wrote around the same weights again, in place.

    Args:
        model: with the weights and the dtype that it was fitted to; others are refused.
        path: the file, or the folder it is in.
        output: what `laplace` was given; functions are not saved.
    """
    if isinstance(model, LinearisedNetwork):
        raise ValueError(f"{type(model).__name__} has a Laplace approximation already.")
    parts = ("structure", "tensors", "prior_precision", "likelihood", "layers", "weights")
    state = tensor_file.read(path, FILE, _KIND, parts, "ba.weight_space.save_laplace")
    tensor_file.check_fingerprint(
        model, state["weights"], path, "load the model that it was fitted to, or fit it to this one"
    )
    layers = set(state["layers"])
    parameters = ParameterVector(model, lambda name, _: name in layers)
    device = next(model.parameters()).device
    tensors = [tensor.to(device) for tensor in state["tensors"].values()]
    kind = {"diagonal": DiagonalPosterior, "full": FullPosterior}[
        checks.one_of("structure", state["structure"], _TENSORS)
    ]
    posterior = kind(*tensors)
    posterior.prior_precision = state["prior_precision"]
    if len(tensors[-1]) != len(parameters):
        raise ValueError(
            f"{str(path)!r} is of {len(tensors[-1])} parameters, the model has {len(parameters)} in these layers."
        )
    return linearise(model, posterior, parameters, state["likelihood"], output)
