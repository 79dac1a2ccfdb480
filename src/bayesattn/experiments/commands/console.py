"""What the commands share: a failure that needs no traceback, and progress bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Failure(Exception):
    """Something failed in a way that was said already: end with an exit code, without a traceback."""


@contextmanager
def progress_bars(console: Console, enabled: bool = True) -> Iterator[Progress]:
    """Bars that show how many are done, and how long the rest will take."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not enabled) as progress:
        yield progress
