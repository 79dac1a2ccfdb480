"""docs/results.md and a page for each paper, from the kept results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bayesattn.experiments.tables.printing import as_markdown
from bayesattn.experiments.tables.registered import TABLES
from bayesattn.experiments.tables.results import TableResults, file_name, read
from bayesattn.experiments.tables.summary import summarise
from bayesattn.support.files import write_atomically


@dataclass(frozen=True)
class Paper:
    """A page of results: the tables whose names begin with one of `prefixes`."""

    title: str
    prefixes: tuple[str, ...]
    printed: bool = True
    """Whether it is about a paper that prints tables and figures; else it is about methods of our own choice."""


PAPERS = {
    "bam": Paper("Bayesian attention modules", ("bam",)),
    "bayesian-transformers": Paper("Bayesian transformers", ("thesis", "own-priors", "prior-scale", "vi-start")),
    "latent-alignment": Paper("Latent alignment and variational attention", ("deng",)),
    "nvib": Paper("A nonparametric bottleneck", ("nvae",)),
    "keep": Paper("What earns its keep", ("keep", "kl-weight"), printed=False),
}
"""Name of the page → what is on it."""

FRONT = """# Results

Rendered by `bayesattn render` from the files in `results/`, which hold every run with its config, seed and commit: do not edit.
"""
INTRODUCTION = """# Results: {title}

Rendered by `bayesattn render` from the files in `results/`: do not edit. Ours is the mean over seeds ± its standard error;
"difference" is ours minus the paper's; "cost / mle" is the processor time of training as a ratio to maximum likelihood's on the
same task, or to that of the method that is named instead. How to run: [experiments.md](../experiments.md).
"""


def render(results: Path, document: Path) -> Path:
    """Write the document of all tables that have results, and beside it, in a folder of its name, a page for each paper.

    A text `NAME.reading.md` beside a table's file is set before the table, `findings.md` before all.
    """
    found = [read(path) for path in kept_files(results)]
    if not found:
        raise FileNotFoundError(f"There are no results in {results}: make them with `bayesattn table NAME`.")
    folder, document = Path(results), Path(document)
    findings = folder / "findings.md"
    front = [FRONT, *([findings.read_text()] if findings.exists() else [])]
    for page, paper in PAPERS.items():
        own = [each for each in found if paper_of(each.table) == page]
        if not own:
            continue
        target = document.with_suffix("") / f"{page}.md"
        parts = [INTRODUCTION.format(title=paper.title), *(_section(each, folder) for each in own)]
        write_atomically(target, "\n".join(parts))
        listed = [f"| {_title(each)} | `bayesattn table {each.table}` | {_budget(each)} |" for each in own]
        front += [
            f"## [{paper.title}]({document.stem}/{page}.md)\n",
            "\n".join(["| table | command | budget |", "| --- | --- | --- |", *listed, ""]),
        ]
    write_atomically(document, "\n".join(front))
    return document


def paper_of(table: str) -> str:
    """The page that a table is on."""
    return next(page for page, paper in PAPERS.items() if table.startswith(paper.prefixes))


def reading_of(table: str, folder: Path) -> str | None:
    """What was read from a table, its links as seen from one folder below the documents; None if nobody has read it."""
    file = Path(folder) / f"{table}.reading.md"
    return re.sub(r"\]\((?![a-z]+:|#)", "](../", file.read_text().strip()) if file.exists() else None


def kept_files(results: Path) -> list[Path]:
    """The files of tables in the folder `results`, which holds figures of other kinds too."""
    names = {file_name(table.name, budget) for table in TABLES.values() for budget in table.budget_names()}
    return sorted(path for path in Path(results).glob("*.json") if path.name in names)


def _title(results: TableResults) -> str:
    return TABLES[results.table].title


def _budget(results: TableResults) -> str:
    return "the paper's budget" if results.budget == "paper" else f"budget `{results.budget}`"


def _section(results: TableResults, folder: Path) -> str:
    table = TABLES[results.table]
    commits = sorted({run["commit"] for run in results.runs})
    said = f"`bayesattn table {table.name}`, {_budget(results)}. Source: {table.source}. Commits: {', '.join(commits)}."
    reading = reading_of(table.name, folder)
    lines = [f"## {table.title}", "", said, "", *([] if reading is None else [reading, ""])]
    lines += [as_markdown(part) for part in summarise(table, results)]
    return "\n".join(lines)
