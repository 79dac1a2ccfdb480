"""`bayesattn fidelity`: the page that holds the papers' tables and figures against what is made here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bayesattn.experiments.tables.fidelity import write_page


@dataclass(frozen=True)
class FidelityCommand:
    """Write which command makes each table and figure of the papers, how far it has been run, and what deviates."""

    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""
    output: Path = field(default_factory=lambda: Path("docs/fidelity.md"))
    """The page."""


def write_fidelity(command: FidelityCommand, console: Console) -> None:
    """`bayesattn fidelity`."""
    console.print(f"Written: {write_page(command.results, command.output)}", soft_wrap=True)
