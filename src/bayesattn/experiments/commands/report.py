"""`bayesattn report`: one HTML file to open in a browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from bayesattn.experiments.report.model_page import model_page
from bayesattn.experiments.report.page import Page, joined, write_page
from bayesattn.experiments.report.runs_page import runs_page
from bayesattn.experiments.report.table_page import table_page
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables import results as kept_results
from bayesattn.experiments.tables.document import kept_files
from bayesattn.support import checks


@dataclass(frozen=True)
class ReportCommand:
    """A report: one HTML file to open in a browser, that needs nothing else."""

    targets: tyro.conf.Positional[tuple[str, ...]] = ()
    """A table's name; or folders of runs of one task; or a folder that `save_pretrained` of a converted model wrote. None: every
    table that has results."""
    sentences: Path | None = None
    """For a saved model: a text file with a sentence on each line."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The file."""


def write_report(command: ReportCommand, console: Console) -> None:
    """`bayesattn report …`."""
    path = write_page(_report_page(command), command.output)
    console.print(f"Written: {path}. Open it in a browser: {path.resolve().as_uri()}", soft_wrap=True)


def _report_page(command: ReportCommand) -> Page:
    folders = [Path(target) for target in command.targets]
    if command.sentences is not None:
        if len(folders) != 1:
            raise ValueError(f"--sentences goes with one folder of a saved model, got {len(folders)} targets.")
        return model_page(folders[0], command.sentences)
    if folders and all((folder / "result.json").exists() for folder in folders):
        return runs_page(folders)
    if len(folders) == 1 and (folders[0] / "config.json").exists():
        raise ValueError(
            f"{folders[0]} holds no finished run. If it is a saved model, say with --sentences FILE what to run it on; if it is a "
            "run, let `bayesattn run` finish it."
        )
    names = [checks.one_of("target", target, TABLES) for target in command.targets] or list(TABLES)
    if command.targets:
        return joined([table_page(name, command.results) for name in names])
    found = {results.table for results in map(kept_results.read, kept_files(command.results))}
    if not found:
        raise FileNotFoundError(f"There are no results in {command.results}: make them with `bayesattn table NAME`.")
    return joined([table_page(name, command.results) for name in names if name in found])
