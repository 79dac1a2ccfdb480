"""How attention weights leave a network: layers show what they drew to the innermost open `watch()`.

What is watched runs on plain torch: the kernels never make the weights. The state is per thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class Seen:
    """The weights of one layer in one pass, drawn or the point estimate, and those of its prior."""

    def __init__(self, source: Any, weights: Tensor, prior: Tensor):
        self.source = source
        self.weights = weights
        self.prior = prior


class _State(threading.local):
    watcher: list[Seen] | None = None


_state = _State()


@contextmanager
def watch() -> Iterator[list[Seen]]:
    """Collect the weights of every attention layer that runs in this block, in the order in which they run."""
    outer = _state.watcher
    seen: list[Seen] = []
    _state.watcher = seen
    try:
        yield seen
    finally:
        _state.watcher = outer


def is_watched() -> bool:
    """Whether a `watch()` block is open."""
    return _state.watcher is not None and not torch.compiler.is_compiling()


def show_weights(source: Any, weights: Tensor, prior: Tensor) -> None:
    """Hand one layer's weights to the open `watch()` block."""
    assert _state.watcher is not None
    _state.watcher.append(Seen(source, weights.detach(), prior.detach()))
