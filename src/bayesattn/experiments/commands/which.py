"""`bayesattn which`: the page "Which method should I use?" and its picture, from the results of table `keep`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bayesattn.experiments.analysis.price_plot import quality_against_price
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.choice import page, standings
from bayesattn.experiments.tables.results import file_name, read
from bayesattn.support.files import write_atomically


@dataclass(frozen=True)
class WhichCommand:
    """Write which method to use, by what one has, needs and can pay, from the kept results of table keep."""

    budget: str = "paper"
    """Of the table."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""
    output: Path = field(default_factory=lambda: Path("docs/which-method.md"))
    """The page."""
    picture: Path = field(default_factory=lambda: Path("docs/images/keep.png"))
    """The plot of quality against price."""


def write_which(command: WhichCommand, console: Console) -> None:
    """`bayesattn which`."""
    table = TABLES["keep"]
    file = command.results / file_name(table.name, command.budget)
    if not file.exists():
        raise FileNotFoundError(f"{file} is not there: make it with `bayesattn table keep --budget {command.budget}`.")
    results = read(file)
    known = standings(table, results)
    link = None
    if any("likelihood" in each.gains for each in known):
        console.print(f"Written: {quality_against_price(known, command.picture)}", soft_wrap=True)
        link = Path(os.path.relpath(command.picture, command.output.parent)).as_posix()
    write_atomically(command.output, page(table, results, link))
    console.print(f"Written: {command.output}", soft_wrap=True)
