"""PyTorch Geometric: `GATConv`, `GATv2Conv`, `TransformerConv`, with the edge softmax replaced by the posterior."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.convert.adapter import Adapter
from bayesattn.convert.attach import attach_posterior, change_class, restore_class
from bayesattn.nn.graph import edge_weights
from bayesattn.posteriors import Posterior

_KEY_PROJECTIONS = {"GATConv": ("lin", "lin_src"), "GATv2Conv": ("lin_l",), "TransformerConv": ("lin_key",)}
"""The linear layer whose output is the projected source nodes, the keys of the attention."""


class GeometricAdapter(Adapter):
    """Runs the layer's own code with another `softmax`: whatever PyG computes around it stays PyG's."""

    name = "PyTorch Geometric (GATConv, GATv2Conv, TransformerConv)"

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        known = _known_classes()
        return {name: module for name, module in model.named_modules() if type(module) in known}

    def unsupported(self, model: nn.Module) -> dict[str, str]:
        known = tuple(_known_classes())
        return {
            name: f"{type(module).__name__} is a subclass of a PyTorch Geometric layer, with code of its own"
            for name, module in model.named_modules()
            if isinstance(module, known) and type(module) not in known and not isinstance(module, _OnEdges)
        }

    def find_converted(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: module for name, module in model.named_modules() if isinstance(module, _OnEdges)}

    def convert_layer(self, layer: nn.Module, posterior: Posterior) -> None:
        attach_posterior(layer, posterior, num_heads=layer.heads, head_dim=layer.out_channels)  # pyright: ignore[reportArgumentType]
        change_class(layer, _OnEdges)

    def revert_layer(self, layer: nn.Module) -> None:
        del layer.posterior
        restore_class(layer)


def _known_classes() -> dict[type, tuple[str, ...]]:
    """The layers by class; none while PyTorch Geometric is not imported: then no model can be made of them."""
    if "torch_geometric.nn" not in sys.modules:
        return {}
    return {getattr(sys.modules["torch_geometric.nn"], name): names for name, names in _KEY_PROJECTIONS.items()}


class _OnEdges(nn.Module):
    """Put before a PyG layer's class. `edge_update` (GAT) or `message` (TransformerConv) is where PyG calls softmax."""

    posterior: Posterior
    heads: int
    out_channels: int
    flow: str

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        names = next(names for cls, names in _known_classes().items() if isinstance(self, cls))
        projection = next(layer for name in names if (layer := getattr(self, name, None)) is not None)
        keys: list[Tensor] = []
        hook = projection.register_forward_hook(lambda module, inputs, output: keys.append(output))
        self.__dict__["_keys"] = keys
        try:
            return super().forward(*args, **kwargs)
        finally:
            hook.remove()
            self.__dict__.pop("_keys")
            self.__dict__.pop("_edges", None)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Nothing: PyG calls this when a layer is copied, and would write generated methods over the two below."""

    def edge_updater(self, edge_index: Any, *args: Any, **kwargs: Any) -> Tensor:
        self._remember_edges(edge_index)
        return super().edge_updater(edge_index, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def propagate(self, edge_index: Any, *args: Any, **kwargs: Any) -> Tensor:
        self._remember_edges(edge_index)
        return super().propagate(edge_index, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def edge_update(self, **kwargs: Any) -> Tensor:
        return _with_softmax(super().edge_update, self._softmax)(**kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def message(self, **kwargs: Any) -> Tensor:
        return _with_softmax(super().message, self._softmax)(**kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _remember_edges(self, edge_index: Any) -> None:
        if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
            raise TypeError(
                "A converted graph layer takes edge_index as a tensor [2, edges], not a sparse adjacency matrix: "
                "convert it with torch_geometric.utils.to_edge_index(adj)[0]."
            )
        self.__dict__["_edges"] = edge_index if self.flow == "source_to_target" else edge_index.flip(0)

    def _softmax(
        self, scores: Tensor, index: Tensor, ptr: Tensor | None = None, num_nodes: int | None = None
    ) -> Tensor:
        """Stands in for `torch_geometric.utils.softmax` inside the layer."""
        keys = self.__dict__["_keys"][0].view(-1, self.heads, self.out_channels)
        queries = num_nodes if num_nodes is not None else int(index.max()) + 1
        return edge_weights(scores, self.__dict__["_edges"], keys, self.posterior, num_queries=queries)


def _with_softmax(method: Callable[..., Tensor], softmax: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`method` with another function under the name softmax, for this call alone."""
    function = method.__func__  # pyright: ignore[reportFunctionMemberAccess]
    copied = types.FunctionType(
        function.__code__,
        {**function.__globals__, "softmax": softmax},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    return types.MethodType(copied, method.__self__)  # pyright: ignore[reportFunctionMemberAccess]
