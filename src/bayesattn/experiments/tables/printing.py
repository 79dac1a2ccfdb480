"""A table in the terminal, and as Markdown."""

from __future__ import annotations

from rich.table import Table as RichTable

from bayesattn.experiments.tables.base import Metric
from bayesattn.experiments.tables.summary import FLOOR, Cell, Part, Row


def in_terminal(part: Part) -> RichTable:
    """One data set: ours, and the paper's in brackets."""
    where = "" if part.dataset.beside is None else f" on {part.dataset.beside}"
    captions = [*part.marks, *([f"in brackets: the paper's{where}"] if part.has_published else [])]
    shown = RichTable(title=f"{part.dataset.label}: {part.spent}", caption="\n".join(captions) or None)
    shown.add_column("method", no_wrap=True)
    for metric in part.dataset.metrics:
        shown.add_column(title(metric), justify="right", overflow="fold")
    shown.add_column(f"cost\n/ {part.reference}", justify="right")
    for row in part.rows:
        cells = [ours(row, cell) + (f" ({paper(cell)})" if cell.published else "") for cell in row.cells]
        shown.add_row(row.method, *cells, _cost(row), style="dim" if row.method == FLOOR else None)
    return shown


def as_markdown(part: Part) -> str:
    """One data set: ours, and where the paper printed figures, those and the difference."""
    header = ["method"]
    beside = [_published_columns(part, index) for index in range(len(part.dataset.metrics))]
    for metric, columns in zip(part.dataset.metrics, beside, strict=True):
        header += [title(metric), *columns]
    header.append(f"cost / {part.reference}")
    rows = []
    for row in part.rows:
        cells = [text for cell, columns in zip(row.cells, beside, strict=True) for text in _texts(row, cell, columns)]
        rows.append([row.method, *cells, _cost(row)])
    lines = [
        f"### {part.dataset.label}",
        "",
        " ".join([f"Task `{part.dataset.task}`: {part.spent}.", *part.marks]),
        "",
        "| " + " | ".join(header) + " |",
        "| --- |" + " ---: |" * (len(header) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def title(metric: Metric) -> str:
    arrow = {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]
    return f"{metric.title}{arrow}"


def _published_columns(part: Part, index: int) -> list[str]:
    """The columns beside ours: none for a figure that the paper did not print, no difference to figures on other data."""
    if not any(row.cells[index].published for row in part.rows):
        return []
    return ["paper", "difference"] if part.dataset.beside is None else [f"paper on {part.dataset.beside}"]


def _texts(row: Row, cell: Cell, columns: list[str]) -> list[str]:
    return [ours(row, cell), *[paper(cell), difference(cell)][: len(columns)]]


def ours(row: Row, cell: Cell) -> str:
    if cell.mean is None:
        return "not run" if cell.published or not row.seeds else ""
    return figure(cell.mean) + ("" if cell.error is None else f" ± {figure(cell.error)}")


def paper(cell: Cell) -> str:
    return "" if cell.published is None else figure(cell.published.value)


def difference(cell: Cell) -> str:
    return "" if cell.difference is None else f"{'+' if cell.difference >= 0 else '−'}{figure(abs(cell.difference))}"


def _cost(row: Row) -> str:
    return "" if row.cost is None else f"{row.cost:.1f}"


def figure(value: float) -> str:
    """Two decimals from 10 on, three from 0.1 on, four below."""
    size = abs(value)
    text = f"{value:.2f}" if size >= 10 else f"{value:.3f}" if size >= 0.1 else f"{value:.4f}"
    return text.replace("-", "−")
