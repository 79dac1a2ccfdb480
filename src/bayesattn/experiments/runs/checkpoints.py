"""When a training keeps where it stands, and when it stops there because somebody asked it to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bayesattn.experiments.runs.folder import RunFolder

SHARE_OF_TIME = 0.02
"""Checkpoints within an epoch take at most this share of the time: those of a large model are rarer."""

State = Callable[[], dict[str, Any]]


class Interrupted(Exception):
    """A run was asked to stop and has kept where it stands: the same config goes on from there."""


def never() -> bool:
    """Nobody asks a run to stop."""
    return False


class Checkpoints:
    """The checkpoints of one run, at least `seconds` apart. Where `stop_if` is true, the run is kept and `Interrupted` raised."""

    def __init__(self, folder: RunFolder, seconds: float, stop_if: Callable[[], bool] = never):
        self.folder = folder
        self.seconds = seconds
        self.stop_if = stop_if
        self._kept_at = time.monotonic()
        self._cost = 0.0

    def after_epoch(self, state: State) -> None:
        """A safe point between two epochs."""
        self._safe_point(state, self.seconds)

    def after_batch(self, state: State) -> None:
        """A safe point within an epoch."""
        self._safe_point(state, max(self.seconds, self._cost / SHARE_OF_TIME))

    def stop_here(self) -> None:
        """A point at which the last checkpoint has everything."""
        if self.stop_if():
            raise Interrupted

    def keep(self, state: dict[str, Any]) -> None:
        """Keep `state` now."""
        start = time.monotonic()
        self.folder.write_checkpoint(state)
        self._kept_at = time.monotonic()
        self._cost = self._kept_at - start

    def _safe_point(self, state: State, seconds: float) -> None:
        stops = self.stop_if()
        if stops or time.monotonic() - self._kept_at >= seconds:
            self.keep(state())
        if stops:
            raise Interrupted
