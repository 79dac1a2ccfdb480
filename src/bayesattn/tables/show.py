"""A table in the terminal, and as Markdown."""

from __future__ import annotations

from rich.table import Table as RichTable

from bayesattn.tables.base import Metric
from bayesattn.tables.summary import FLOOR, Cell, Part, Row


def in_terminal(part: Part) -> RichTable:
    """One data set: ours, and the paper's in brackets."""
    caption = "in brackets: the paper's" if part.has_published else None
    shown = RichTable(title=f"{part.dataset.label}: {part.spent}", caption=caption)
    shown.add_column("method", no_wrap=True)
    for metric in part.dataset.metrics:
        shown.add_column(_title(metric), justify="right")
    shown.add_column("cost\n/ mle", justify="right")
    for row in part.rows:
        cells = [_ours(row, cell) + (f" ({_paper(cell)})" if cell.published else "") for cell in row.cells]
        shown.add_row(row.method, *cells, _cost(row), style="dim" if row.method == FLOOR else None)
    return shown


def as_markdown(part: Part) -> str:
    """One data set: ours, and where the paper printed figures, those and the difference."""
    header = ["method"]
    for metric in part.dataset.metrics:
        header += [_title(metric), *(("paper", "difference") if part.has_published else ())]
    header.append("cost / mle")
    rows = []
    for row in part.rows:
        cells = [text for cell in row.cells for text in _texts(row, cell, part.has_published)]
        rows.append([row.method, *cells, _cost(row)])
    lines = [
        f"### {part.dataset.label}",
        "",
        f"Task `{part.dataset.task}`: {part.spent}.",
        "",
        "| " + " | ".join(header) + " |",
        "| --- |" + " ---: |" * (len(header) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _title(metric: Metric) -> str:
    arrow = {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]
    return f"{metric.title}{arrow}"


def _texts(row: Row, cell: Cell, with_published: bool) -> list[str]:
    ours = _ours(row, cell)
    return [ours, _paper(cell), _difference(cell)] if with_published else [ours]


def _ours(row: Row, cell: Cell) -> str:
    if cell.mean is None:
        return "" if row.seeds else "not run"
    return _figure(cell.mean) + ("" if cell.error is None else f" ± {_figure(cell.error)}")


def _paper(cell: Cell) -> str:
    return "" if cell.published is None else _figure(cell.published.value)


def _difference(cell: Cell) -> str:
    return "" if cell.difference is None else f"{'+' if cell.difference >= 0 else '−'}{_figure(abs(cell.difference))}"


def _cost(row: Row) -> str:
    return "" if row.cost is None else f"{row.cost:.1f}"


def _figure(value: float) -> str:
    """Two decimals from 10 on, three from 0.1 on, four below."""
    size = abs(value)
    text = f"{value:.2f}" if size >= 10 else f"{value:.3f}" if size >= 0.1 else f"{value:.4f}"
    return text.replace("-", "−")
