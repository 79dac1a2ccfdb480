"""How attention weights leave a network: layers show what they drew to the innermost open `watch()`.

What is watched runs on plain torch: the kernels never make the weights. `modes.is_watched` says whether
anybody watches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from bayesattn.scopes import modes


class Seen:
    """The weights of one layer in one pass, drawn or the point estimate, and those of its prior."""

    def __init__(self, source: Any, weights: Tensor, prior: Tensor):
        self.source = source
        self.weights = weights
        self.prior = prior


@contextmanager
def watch() -> Iterator[list[Seen]]:
    """Collect the weights of every attention layer that runs in this block, in the order in which they run."""
    seen: list[Seen] = []
    with modes.watcher.held(seen):
        yield seen


def show_weights(source: Any, weights: Tensor, prior: Tensor) -> None:
    """Hand one layer's weights to the open `watch()` block."""
    seen = modes.watcher.get()
    assert seen is not None
    seen.append(Seen(source, weights.detach(), prior.detach()))
