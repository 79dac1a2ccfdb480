"""docs/fidelity.md: every table and figure that the papers print, the command that makes it here, and how far it has been run."""

from __future__ import annotations

import csv
import itertools
import shlex
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from bayesattn.experiments.tables.base import Table
from bayesattn.experiments.tables.document import PAPERS
from bayesattn.experiments.tables.registered import TABLES
from bayesattn.experiments.tables.results import file_name, read
from bayesattn.support.files import write_atomically

FRONT = """# Fidelity: what the papers print, and what makes it here

Written by `bayesattn fidelity` from the lists in `src/bayesattn/experiments/tables/printed/` and the results in `results/`:
do not edit. A table is *complete* where every row that the paper prints has all its runs at the paper's budget. Other data
that stands in for the paper's is said to *stand in*, at whatever budget. `--budget NAME` runs a table at the budget named.
What the papers and their released code disagree about, and which is the default here:
[Design](design.md#where-papers-and-released-code-disagree).
"""
HEADER = "| printed | what it shows | command | state | why | deviations |\n| --- | --- | --- | --- | --- | --- |"
COMPLETE, UNKEPT, NONE = "complete", "printed, not kept", "none"


@dataclass(frozen=True)
class Printed:
    """A table, a figure or a claim of a paper. It has a command that makes it, or a reason why it has none."""

    printed: str
    """What the paper calls it."""
    what: str
    command: str
    picture: str
    """What the command draws, below the folder of the project; may be empty."""
    reason: str
    """Why there is no command, or why what it makes is not complete: needed unless it is."""
    deviations: str

    def __post_init__(self) -> None:
        if not self.command and not self.reason:
            raise ValueError(f"{self.printed} ({self.what}) has neither a command nor a reason: give it one of them.")

    @property
    def table(self) -> Table | None:
        """The table that the command makes."""
        words = shlex.split(self.command)
        return TABLES[words[2]] if words[:2] == ["bayesattn", "table"] else None

    @property
    def rows(self) -> list[str]:
        """The rows that the command names with --methods, if it does."""
        words = shlex.split(self.command)
        named = words[words.index("--methods") + 1 :] if "--methods" in words else []
        return list(itertools.takewhile(lambda word: not word.startswith("--"), named))


def printed_in(paper: str) -> list[Printed]:
    """What a paper prints, in its order; `paper` as it is named in PAPERS."""
    text = resources.files("bayesattn.experiments.tables").joinpath("printed", f"{paper}.csv").read_text()
    return [Printed(**row) for row in csv.DictReader(text.splitlines(), strict=True)]


def write_page(results: Path, page: Path) -> Path:
    """Write the page from what the folder `results` keeps and the pictures of the project that it is in."""
    parts = [FRONT]
    for paper, shown in ((name, each) for name, each in PAPERS.items() if each.printed):
        lines = [_line(entry, Path(results)) for entry in printed_in(paper)]
        parts.append("\n".join([f"## {shown.title}\n", HEADER, *lines, ""]))
    write_atomically(Path(page), "\n".join(parts))
    return Path(page)


def _line(entry: Printed, results: Path) -> str:
    command = f"`{entry.command}`" if entry.command else "none"
    said = state(entry, results)
    if said not in (COMPLETE, UNKEPT) and not entry.reason:
        raise ValueError(f"{entry.printed} ({entry.what}) is not complete ({said}): give its line a reason.")
    why = "" if said == COMPLETE else entry.reason
    return f"| {entry.printed} | {entry.what} | {command} | {said} | {why or NONE} | {entry.deviations or NONE} |"


def state(entry: Printed, results: Path) -> str:
    """How far it has been run, in words."""
    if not entry.command:
        return "no command"
    said = [] if entry.table is None else [_state_of_table(entry.table, entry.rows, results)]
    if entry.picture:
        drawn = (results.resolve().parent / entry.picture).exists()
        link = f"[{Path(entry.picture).name}]({entry.picture.removeprefix('docs/')})"
        said.append(f"drawn: {link}" if drawn else "not drawn")
    return "; ".join(said) or UNKEPT


def _state_of_table(table: Table, rows: list[str], results: Path) -> str:
    """Tasks of which the same is true are named together."""
    files = {budget: results / file_name(table.name, budget) for budget in table.budget_names()}
    kept = {budget: read(path) for budget, path in files.items() if path.exists()}
    runs = {
        name: config.task for each in kept.values() for name, config in zip(each.by_name, each.configs, strict=True)
    }
    tasks: dict[str, list[str]] = {}
    for task in table.tasks():
        of_task = {name for name, its_task in runs.items() if its_task == task}
        tasks.setdefault(_state_of_task(table, task, rows, list(kept), of_task), []).append(task)
    if list(tasks) == [COMPLETE]:
        return COMPLETE
    return "; ".join(f"{', '.join(f'`{name}`' for name in names)}: {said}" for said, names in tasks.items())


def _state_of_task(table: Table, task: str, rows: list[str], kept: list[str], runs: set[str]) -> str:
    """The runs of these rows, or else of those that the paper prints: at its budget, at others, and with options of no budget any more."""
    datasets = [dataset for dataset in table.datasets if dataset.task == task]
    stands_in = any(dataset.beside is not None for dataset in datasets)
    labels = {dataset.beside or dataset.label for dataset in datasets}
    with_figures = {method for label, _, method in table.published() if label in labels}
    rows = rows or [row for row in table.methods if row in with_figures] or list(table.methods)
    said: list[str] = []
    rest = set(runs)
    for budget in kept if stands_in else dict.fromkeys(["paper", *kept]):
        wanted = {config.name for config in table.configs(budget, tasks=[task], methods=rows)}
        if budget == "paper" and wanted and wanted <= runs and not stands_in:
            return COMPLETE
        if wanted & rest:
            have = len(wanted & runs)
            said.append(f"budget `{budget}`, {'all' if have == len(wanted) else f'{have} of'} {len(wanted)} runs")
        rest -= {config.name for config in table.configs(budget, tasks=[task])}
    if rest:
        said.append(f"kept with earlier options: {len(rest)}")
    words = " and ".join(said) or "not run"
    return f"stands in, {words}" if stands_in else words
