"""`bayesattn figure`: a figure of a paper that is not a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table as RichTable

from bayesattn.experiments.analysis.paper_figures import FIGURES, Places
from bayesattn.support import checks


@dataclass(frozen=True)
class FigureCommand:
    """A figure of a paper: runs what is missing, keeps its data in the results folder, and draws it."""

    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """Name of a figure."""
    list: bool = False
    """List the figures instead."""
    folder: Path = Path("runs")
    """Where runs are kept, each in a folder of its own."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the data of figures is kept."""
    output: Path = field(default_factory=lambda: Path("docs/study"))
    """Where they are drawn."""


def make_figure(command: FigureCommand, console: Console) -> None:
    """`bayesattn figure NAME`."""
    if command.list:
        shown = RichTable("figure", "what", title="Figures")
        for figure in FIGURES.values():
            shown.add_row(figure.name, figure.title)
        console.print(shown)
        return
    if command.name is None:
        raise ValueError(f"Say which figure. {checks.suggestion('', FIGURES)}")
    figure = FIGURES[checks.one_of("figure", command.name, FIGURES)]
    places = Places(command.folder, command.results, command.output, lambda line: console.print(line, soft_wrap=True))
    for path in figure.make(places):
        console.print(f"Written: {path}", soft_wrap=True)
