"""How a forward pass runs: what is drawn and from where (`sampling()`, `one_draw()` for a network that is random as a whole), and
whether its weights are watched.

The state is per thread and per asyncio task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from bayesattn.scopes import checkpoints
from bayesattn.scopes.variable import ScopeVariable

Drawn = TypeVar("Drawn")
Setting = TypeVar("Setting")


class DrawsOnce:
    """Marks modules whose draw belongs to a whole network and not to a row of the batch, such as random weights.

    `predict` gives every sample a pass of its own through such a model, instead of folding samples into the batch.
    """


class DrawsOutputs:
    """Marks a head that draws a network's outputs: samples share all that comes before it, so `predict` draws them all in one pass."""


class RunsTogether(DrawsOnce):
    """Marks a model that is one of several networks, sample by sample, and may have a way to run them in one pass."""

    def outputs_together(self, run: Callable[[nn.Module], Any], samples: int) -> Any:
        """The tensors that `run` gives for each of the first `samples` networks (at most all of them), stacked; None: there is no way."""
        raise NotImplementedError


class Draw:
    """One sample of a whole network: its number, and what has been drawn for it."""

    def __init__(self, index: int):
        self.index = index
        self.kept: dict[int, Any] = {}


_sampling: ScopeVariable[bool] = ScopeVariable("sampling()", False)
_generator: ScopeVariable[torch.Generator | None] = ScopeVariable("sampling()", None)
_draw: ScopeVariable[Draw | None] = ScopeVariable("one_draw()", None)
watcher: ScopeVariable[list[Any] | None] = ScopeVariable("watch()", None)
"""What `watching.watch()` collects in."""


@contextmanager
def sampling(generator: torch.Generator | None = None) -> Iterator[None]:
    """Sample in this block, also in eval mode; with a `generator`, all noise of the block comes from it."""
    with _sampling.held(True), _generator.held(generator):
        yield


def is_sampling() -> bool:
    """Whether a `sampling()` block is open."""
    if torch.compiler.is_compiling():
        return _sampling.get()
    return as_in_first_run("sampling", _sampling.in_context.get())


def draws_now(module: nn.Module) -> bool:
    """Whether what is random in this module is drawn now (training, or a `sampling()` block) or is its point estimate (eval)."""
    return module.training or is_sampling()


def is_watched() -> bool:
    """Whether a `watch()` block is open. Compiled code is not watched: it makes no weights."""
    return not torch.compiler.is_compiling() and watcher.in_context.get() is not None


def current_generator(explicit: torch.Generator | None = None) -> torch.Generator | None:
    """The generator to draw from: the `explicit` one, or that of the innermost `sampling(generator=...)` block.

    Where gradient checkpointing runs a layer again, one in the state in which the first run found it.
    """
    generator = explicit or (_generator.get() if torch.compiler.is_compiling() else _generator.in_context.get())
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
    with _draw.held(Draw(index)):
        yield


current_draw = _draw.get
"""The draw of the innermost `one_draw()` block."""


def kept_draw(source: Any, make: Callable[[], Drawn]) -> Drawn:
    """`make()`; inside `one_draw()` only the first time for each `source`, and the same again from then on."""
    draw = _draw.get()
    if draw is None:
        return make()
    if id(source) not in draw.kept:
        draw.kept[id(source)] = make()
    return draw.kept[id(source)]
