"""What a library of models must tell us so that its attention can be converted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from torch import nn

from bayesattn.posteriors import Posterior

Role = Literal["self", "cross"]


class Adapter(ABC):
    """Finds, converts and reverts the attention layers of one library. A new library is one subclass, registered in `conversion`."""

    name: str
    template: ClassVar[type] = Posterior
    """What it can give to a layer: a posterior of the weights, or something that takes the whole of attention over."""

    @abstractmethod
    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        """The attention layers that can be converted, by name, in the order of the model."""

    def roles(self, model: nn.Module) -> dict[str, Role]:
        """Of the layers of `find`, those known to be self- or cross-attention, for `where="self"` and `where="cross"`."""
        return {}

    @abstractmethod
    def unsupported(self, model: nn.Module) -> dict[str, str]:
        """Attention layers that look like this library's but cannot be converted, with the reason."""

    @abstractmethod
    def find_converted(self, model: nn.Module) -> dict[str, nn.Module]:
        """The layers that `convert_layer` has changed."""

    @abstractmethod
    def convert_layer(self, layer: nn.Module, posterior: Any) -> None:
        """Change one layer in place; it gets its own copy of the posterior, which is a `template`."""

    @abstractmethod
    def revert_layer(self, layer: nn.Module) -> None:
        """Undo `convert_layer`."""

    def after_conversion(self, model: nn.Module) -> None:
        """Change what stands around the layers: fast paths that would go past them, and the like."""

    def after_reversion(self, model: nn.Module) -> None:
        """Undo `after_conversion`."""
