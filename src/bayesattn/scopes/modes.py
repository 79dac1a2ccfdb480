"""What is drawn in a forward pass, and from where: `sampling()`, and `one_draw()` for a network that is random as a whole.

The state is per thread and per asyncio task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from bayesattn.scopes.variable import ScopeVariable

Drawn = TypeVar("Drawn")


class DrawsOnce:
    """Marks modules whose draw belongs to a whole network and not to a row of the batch, such as random weights.

    `predict` gives every sample a pass of its own through such a model, instead of folding samples into the batch.
    """


class Draw:
    """One sample of a whole network: its number, and what has been drawn for it."""

    def __init__(self, index: int):
        self.index = index
        self.kept: dict[int, Any] = {}


_sampling: ScopeVariable[bool] = ScopeVariable("sampling()", False)
_generator: ScopeVariable[torch.Generator | None] = ScopeVariable("sampling()", None)
_draw: ScopeVariable[Draw | None] = ScopeVariable("one_draw()", None)


@contextmanager
def sampling(generator: torch.Generator | None = None) -> Iterator[None]:
    """Sample in this block, also in eval mode; with a `generator`, all noise of the block comes from it."""
    with _sampling.held(True), _generator.held(generator):
        yield


def is_sampling() -> bool:
    """Whether a `sampling()` block is open."""
    return _sampling.get()


def draws_now(module: nn.Module) -> bool:
    """Whether what is random in this module is drawn now (training, or a `sampling()` block) or is its point estimate (eval)."""
    return module.training or _state.sampling


def current_generator() -> torch.Generator | None:
    """The generator of the innermost `sampling(generator=...)` block."""
    return _generator.get()


@contextmanager
def one_draw(index: int = 0) -> Iterator[None]:
    """All passes in this block are of one network: what belongs to the whole network is drawn once and kept."""
    with _draw.held(Draw(index)):
        yield


def current_draw() -> Draw | None:
    """The draw of the innermost `one_draw()` block."""
    return _draw.get()


def kept_draw(source: Any, make: Callable[[], Drawn]) -> Drawn:
    """`make()`; inside `one_draw()` only the first time for each `source`, and the same again from then on."""
    draw = _draw.get()
    if draw is None:
        return make()
    if id(source) not in draw.kept:
        draw.kept[id(source)] = make()
    return draw.kept[id(source)]
