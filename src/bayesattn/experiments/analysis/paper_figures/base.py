"""Figures of the papers that need more than one run's metrics: what can be named after `bayesattn figure`.

A figure is one function: it runs what it needs and is missing, writes its data as JSON into the results folder, and draws from that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bayesattn.experiments.runs import RunConfig
from bayesattn.experiments.runs.single import commit
from bayesattn.experiments.runs.sweep import sweep
from bayesattn.support.files import write_atomically


@dataclass(frozen=True)
class Places:
    """Where a figure finds its runs and puts what it makes."""

    runs: Path = Path("runs")
    """Where runs are kept, each in a folder of its own."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the data of figures is kept."""
    images: Path = field(default_factory=lambda: Path("docs/study"))
    """Where they are drawn."""
    say: Callable[[str], object] = lambda line: None
    """Told what is going on, line by line."""

    def results_of(self, configs: Sequence[RunConfig], jobs: int = 1) -> list[dict[str, Any]]:
        """The results of these runs, computed where they are missing; one that fails stops the figure."""
        self.say(f"{len(configs)} runs")
        outcomes = sweep(configs, self.runs, jobs=jobs, on_outcome=lambda outcome: self.say(outcome.config.name))
        found = []
        for outcome in outcomes:
            if outcome.result is None:
                raise RuntimeError(f"{outcome.config.name} failed, and the figure needs it: {outcome.error}")
            found.append(outcome.result)
        return found

    def keep(self, name: str, data: dict[str, Any]) -> Path:
        """Write a figure's data, with the command and the code that made it."""
        made = {"command": f"bayesattn figure {name}", "commit": commit(), "torch": torch.__version__}
        path = self.results / f"{name}.json"
        write_atomically(path, json.dumps(made | data, indent=1) + "\n")
        return path


@dataclass(frozen=True)
class PaperFigure:
    """A figure, or several that are made together."""

    name: str
    title: str
    """What it shows, with the paper's numbers."""
    make: Callable[[Places], list[Path]]
    """Gives the files that it has written."""


FIGURES: dict[str, PaperFigure] = {}


def add(name: str, title: str, make: Callable[[Places], list[Path]]) -> None:
    """Register a figure."""
    if name in FIGURES:
        raise ValueError(f"There is a figure named {name!r} already.")
    FIGURES[name] = PaperFigure(name, title, make)
