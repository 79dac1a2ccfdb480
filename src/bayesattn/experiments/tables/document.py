"""docs/results.md, from the kept results."""

from __future__ import annotations

from pathlib import Path

from bayesattn.experiments.tables.printing import as_markdown
from bayesattn.experiments.tables.registered import TABLES
from bayesattn.experiments.tables.results import TableResults, file_name, read
from bayesattn.experiments.tables.summary import summarise
from bayesattn.support.files import write_atomically

INTRODUCTION = """# Results

Rendered by `bayesattn render` from the files in `results/`, which hold every run with its config, seed and commit: do not edit.
Ours is the mean over seeds ± its standard error; "difference" is ours minus the paper's; "cost / mle" is the processor time
of training as a ratio to maximum likelihood's on the same task, or to that of the method that is named instead.
How to run: [experiments.md](experiments.md).
"""


def render(results: Path, document: Path) -> Path:
    """Write the document of all tables that have results; a text `NAME.reading.md` beside a table's file is set before it."""
    found = [read(path) for path in kept_files(results)]
    if not found:
        raise FileNotFoundError(f"There are no results in {results}: make them with `bayesattn table NAME`.")
    parts = [INTRODUCTION, *(_section(each, Path(results)) for each in found)]
    write_atomically(Path(document), "\n".join(parts))
    return Path(document)


def kept_files(results: Path) -> list[Path]:
    """The files of tables in the folder `results`, which holds figures of other kinds too."""
    names = {file_name(table.name, budget) for table in TABLES.values() for budget in table.budget_names()}
    return sorted(path for path in Path(results).glob("*.json") if path.name in names)


def _section(results: TableResults, folder: Path) -> str:
    table = TABLES[results.table]
    commits = sorted({run["commit"] for run in results.runs})
    budget = "the paper's budget" if results.budget == "paper" else f"budget `{results.budget}`"
    lines = [
        f"## {table.title}",
        "",
        f"`bayesattn table {table.name}`, {budget}. Source: {table.source}. Commits: {', '.join(commits)}.",
        "",
    ]
    reading = folder / f"{table.name}.reading.md"
    if reading.exists():
        lines += [reading.read_text().strip(), ""]
    lines += [as_markdown(part) for part in summarise(table, results)]
    return "\n".join(lines)
