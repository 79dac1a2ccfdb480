"""What is drawn in a forward pass, and from where: `sampling()`, and `one_draw()` for a network that is random as a whole.

The state is per thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from bayesattn.scopes import checkpoints

Drawn = TypeVar("Drawn")
Setting = TypeVar("Setting")


class DrawsOnce:
    """Marks modules whose draw belongs to a whole network and not to a row of the batch, such as random weights.

    `predict` gives every sample a pass of its own through such a model, instead of folding samples into the batch.
    """


class Draw:
    """One sample of a whole network: its number, and what has been drawn for it."""

    def __init__(self, index: int):
        self.index = index
        self.kept: dict[int, Any] = {}


class _State(threading.local):
    sampling: bool = False
    generator: torch.Generator | None = None
    draw: Draw | None = None


_state = _State()


@contextmanager
def sampling(generator: torch.Generator | None = None) -> Iterator[None]:
    """Sample in this block, also in eval mode; with a `generator`, all noise of the block comes from it."""
    outer = (_state.sampling, _state.generator)
    _state.sampling, _state.generator = True, generator
    try:
        yield
    finally:
        _state.sampling, _state.generator = outer


def is_sampling() -> bool:
    """Whether a `sampling()` block is open."""
    return as_in_first_run("sampling", _state.sampling)


def draws_now(module: nn.Module) -> bool:
    """Whether what is random in this module is drawn now (training, or a `sampling()` block) or is its point estimate (eval)."""
    return module.training or is_sampling()


def current_generator(explicit: torch.Generator | None = None) -> torch.Generator | None:
    """The generator to draw from: the `explicit` one, or that of the innermost `sampling(generator=...)` block.

    Where gradient checkpointing runs a layer again, one in the state in which the first run found it.
    """
    generator = explicit or _state.generator
    if not _may_be_checkpointed():
        return generator
    now = None if generator is None else (generator.device, generator.get_state())
    then = checkpoints.answer("generator", now)
    if then is now:
        return generator
    return None if then is None else torch.Generator(then[0]).set_state(then[1])


def as_in_first_run(question: str, value: Setting) -> Setting:
    """`value`; where gradient checkpointing runs a layer again, what it was there in the first run."""
    return checkpoints.answer(question, value) if _may_be_checkpointed() else value


def _may_be_checkpointed() -> bool:
    """Whether a checkpointed function may be running, for the first time or again.

    That is in a backward pass, with hooks for what is saved, or, as the older kind of checkpointing does it, with gradients off.
    """
    if torch.compiler.is_compiling():
        return False
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)  # pyright: ignore[reportAttributeAccessIssue]
    return hooks is not None or not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1


@contextmanager
def one_draw(index: int = 0) -> Iterator[None]:
    """All passes in this block are of one network: what belongs to the whole network is drawn once and kept."""
    outer = _state.draw
    _state.draw = Draw(index)
    try:
        yield
    finally:
        _state.draw = outer


def current_draw() -> Draw | None:
    """The draw of the innermost `one_draw()` block."""
    return _state.draw


def kept_draw(source: Any, make: Callable[[], Drawn]) -> Drawn:
    """`make()`; inside `one_draw()` only the first time for each `source`, and the same again from then on."""
    draw = _state.draw
    if draw is None:
        return make()
    if id(source) not in draw.kept:
        draw.kept[id(source)] = make()
    return draw.kept[id(source)]
