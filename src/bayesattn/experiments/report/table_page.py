"""The report of a table: every data set, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.page import Page, Section
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.document import kept_files
from bayesattn.experiments.tables.results import TableResults, read
from bayesattn.experiments.tables.summary import summarise


def table_page(name: str, results: Path) -> Page:
    """The kept results of one table, at every budget that has any."""
    found = [read(path) for path in kept_files(results)]
    mine = [each for each in found if each.table == name]
    if not mine:
        raise FileNotFoundError(f"{results} holds no figures of {name}: make them with `bayesattn table {name}`.")
    table = TABLES[name]
    return Page(
        table.title,
        f"Ours beside the paper's. Source: {table.source}. Made by: bayesattn report {name}",
        tuple(section for each in mine for section in _sections(each, Path(results))),
    )


def _sections(results: TableResults, folder: Path) -> list[Section]:
    table = TABLES[results.table]
    parts = [sections.table(part) for part in summarise(table, results)]
    reading = folder / f"{table.name}.reading.md"
    if reading.exists():
        parts.insert(
            0, Section("In words", Markup('<div class="reading">{}</div>').format(_paragraphs(reading.read_text())))
        )
    return parts


def _paragraphs(text: str) -> Markup:
    """Markdown's paragraphs and bullets, with its marks taken off: a reading has no more than those."""
    blocks: list[Markup] = []
    for block in text.strip().split("\n\n"):
        bullets = [" ".join(item.split()) for item in f"\n{block}".split("\n- ")]
        if len(bullets) > 1:
            items = Markup("").join(Markup("<li>{}</li>").format(_plain(item)) for item in bullets[1:])
            blocks.append(Markup("<ul>{}</ul>").format(items))
        else:
            blocks.append(Markup("<p>{}</p>").format(_plain(" ".join(block.split()))))
    return Markup("").join(blocks)


def _plain(text: str) -> str:
    return text.replace("**", "").replace("*", "").replace("`", "")
