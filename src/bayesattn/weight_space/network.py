"""What is random about a network as a whole: its chosen parameters as one vector, and running it with another one."""

from __future__ import annotations

from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from bayesattn.support.annotations import Float
from bayesattn.support.replica import altered
from bayesattn.weight_space.selection import Where, choose_layers

Model = TypeVar("Model", bound=nn.Module)


class ParameterVector:
    """The chosen parameters of a model, in one order. It holds no tensors of its own, only names."""

    def __init__(self, model: nn.Module, where: Where):
        self.owners: dict[str, list[tuple[str, str]]] = {}
        """Parameter name → every (module, attribute) that it is: several where parameters are tied."""
        self.shapes: dict[str, torch.Size] = {}
        first: dict[int, str] = {}
        for name, module in choose_layers(model, where).items():
            if isinstance(module, nn.RNNBase):
                raise ValueError(
                    f"Layer {name!r} is a {type(module).__name__}, whose kernels keep their own copy of the weights: "
                    "choose the other layers with where=."
                )
            for key, parameter in module.named_parameters(recurse=False):
                full = first.setdefault(id(parameter), f"{name}.{key}" if name else key)
                self.owners.setdefault(full, []).append((name, key))
                self.shapes[full] = parameter.shape
        self.sizes = [shape.numel() for shape in self.shapes.values()]

    def __len__(self) -> int:
        return sum(self.sizes)

    def read(self, model: nn.Module) -> Float[Tensor, " parameters"]:
        """The model's own values, as one vector."""
        return torch.cat([model.get_parameter(name).detach().flatten() for name in self.shapes])

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """The vector as tensors of the parameters' shapes, by name."""
        pieces = vector.split(self.sizes)
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def model_with(self, model: Model, tensors: dict[str, Tensor]) -> Model:
        """The model with these tensors for its parameters; the model itself stays as it is."""
        changes: dict[nn.Module, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            for module, key in self.owners[name]:
                changes.setdefault(model.get_submodule(module), {})[key] = tensor
        return cast(Model, altered(model, changes))
