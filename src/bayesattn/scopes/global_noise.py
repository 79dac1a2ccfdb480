"""`noise_from(generator)`: what torch would draw from its global generator, dropout above all, drawn from one of our own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_NATIVE_DROPOUT = torch.ops.aten.native_dropout.default


class noise_from(TorchDispatchMode):
    """In this block, and in this thread alone, every random operation draws from `generator`: the same generator, the same dropout.

    What is given a generator of its own keeps it. An operation that can draw from the global generator alone is refused.

    >>> import torch, torch.nn.functional as F
    >>> def drop(seed):
    ...     with noise_from(torch.Generator().manual_seed(seed)):
    ...         return F.dropout(torch.ones(100), 0.5)
    >>> torch.equal(drop(0), drop(0)), torch.equal(drop(0), drop(1)), drop(0).unique().tolist()
    (True, False, [0.0, 2.0])
    """

    def __init__(self, generator: torch.Generator):
        super().__init__()
        self.generator = generator

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        given = _arguments(func, args, kwargs)
        if given.get("generator") is not None or given.get("dropout_p") == 0.0:
            return func(*args, **kwargs)
        if func is _NATIVE_DROPOUT:  # of a GPU
            return self._dropout(*args, **kwargs)
        if "generator" in given:
            return func(**{**given, "generator": self.generator})
        packet = func.overloadpacket
        overloads = [getattr(packet, name)._schema.arguments for name in packet.overloads()]
        if any(argument.name == "generator" for arguments in overloads for argument in arguments):
            return packet(*args, **kwargs, generator=self.generator)
        if func._can_decompose():  # in inference mode an operation arrives whole
            with self:
                return func.decompose(*args, **kwargs)
        raise ValueError(
            f"generator= cannot be used with {func.name()}, which draws from torch's global generator alone: leave generator out "
            "and use torch.manual_seed, or give the model another implementation of attention (eager)."
        )

    def _dropout(self, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        if train is False or p == 0.0:
            return input, torch.ones_like(input, dtype=torch.bool)
        kept = torch.empty(input.shape, device=self.generator.device).bernoulli_(1 - p, generator=self.generator)
        kept = kept.to(input.device, torch.bool)
        return input * kept * (1 / (1 - p) if p < 1 else 0.0), kept


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What an operation is called with, by name, its defaults too."""
    expected = func._schema.arguments
    defaults = {argument.name: argument.default_value for argument in expected if argument.has_default_value()}
    return defaults | {argument.name: value for argument, value in zip(expected, args, strict=False)} | kwargs
