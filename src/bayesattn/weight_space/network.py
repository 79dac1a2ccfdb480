"""What is random about a network as a whole: its chosen parameters as one vector, and running it with another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from bayesattn.support.annotations import Float
from bayesattn.weight_space.layers import in_place_of_parameters
from bayesattn.weight_space.selection import Where, choose_layers


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

    @contextmanager
    def in_place(self, model: nn.Module, tensors: dict[str, Tensor]) -> Iterator[None]:
        """The model runs with these tensors."""
        with ExitStack() as stack:
            for name, tensor in tensors.items():
                for module, key in self.owners[name]:
                    stack.enter_context(in_place_of_parameters(model.get_submodule(module), {key: tensor}))
            yield
