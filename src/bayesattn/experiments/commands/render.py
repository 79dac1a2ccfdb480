"""`bayesattn render`: the document of all kept results."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bayesattn.experiments.tables.document import render


@dataclass(frozen=True)
class RenderCommand:
    """Write the document of all kept results."""

    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""
    output: Path = field(default_factory=lambda: Path("docs/results.md"))
    """The document."""


def render_document(command: RenderCommand, console: Console) -> None:
    """`bayesattn render`."""
    console.print(f"Written: {render(command.results, command.output)}", soft_wrap=True)
