"""From runs to figures: means and standard errors over seeds, the paper's figure, the difference, the cost."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from bayesattn.tables.base import Dataset, Published, Table
from bayesattn.tables.results import TableResults

FLOOR = "floor"
"""The name of the row of the true process."""


@dataclass(frozen=True)
class Cell:
    """One figure: the mean over seeds, its standard error (None with one seed), and what the paper printed."""

    mean: float | None
    error: float | None
    published: Published | None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if self.mean is None or self.published is None:
            return None
        return self.mean - self.published.value


@dataclass(frozen=True)
class Row:
    """One method on one data set."""

    method: str
    seeds: int
    cells: tuple[Cell, ...]
    cost: float | None
    """Processor time of its training as a ratio to that of `mle`."""


@dataclass(frozen=True)
class Part:
    """One data set of a table."""

    dataset: Dataset
    rows: tuple[Row, ...]
    spent: str
    """The budget in words."""

    @property
    def has_published(self) -> bool:
        """Whether the paper printed any of its figures."""
        return any(cell.published for row in self.rows for cell in row.cells)


def summarise(table: Table, results: TableResults) -> list[Part]:
    """The table's data sets that have runs, each with a row for every method that has."""
    published = table.published()
    parts = []
    for dataset in table.datasets:
        rows = [
            _row(dataset, method, _runs(table, dataset, method, results), results, published)
            for method in table.methods
        ]
        rows = [row for row in rows if row.seeds or any(cell.published for cell in row.cells)]
        runs = [run for method in table.methods for run in _runs(table, dataset, method, results)]
        if not runs:
            continue
        floor = results.floors.get(dataset.task)
        if floor is not None:
            cells = tuple(Cell(floor[metric.ours], None, None) for metric in dataset.metrics)
            rows.insert(0, Row(FLOOR, 0, cells, None))
        parts.append(Part(dataset, tuple(rows), _spent(runs)))
    return parts


def _runs(table: Table, dataset: Dataset, method: str, results: TableResults) -> list[dict[str, Any]]:
    variant = table.variant(method)
    return results.of(dataset.task, variant.method, variant.options)


def _row(
    dataset: Dataset,
    method: str,
    runs: list[dict[str, Any]],
    results: TableResults,
    published: dict[tuple[str, str, str], Published],
) -> Row:
    cells = tuple(
        _cell(
            [run["metrics"][metric.ours] for run in runs if metric.ours in run["metrics"]],
            published.get((dataset.label, metric.published, method)),
        )
        for metric in dataset.metrics
    )
    mine, mle = _seconds(runs), _seconds(results.of(dataset.task, "mle"))
    return Row(method, len(runs), cells, mine / mle if mine and mle else None)


def _cell(values: list[float], published: Published | None) -> Cell:
    if not values:
        return Cell(None, None, published)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Cell(statistics.fmean(values), error, published)


def _seconds(runs: list[dict[str, Any]]) -> float | None:
    return statistics.fmean(run["train_seconds"] for run in runs) if runs else None


def _spent(runs: list[dict[str, Any]]) -> str:
    """Epochs, seeds and data of these runs, where they differ as a range."""

    def span(values: list[Any]) -> str:
        low, high = min(values), max(values)
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    counts: dict[str, int] = {}
    for run in runs:
        cell = repr((run["config"]["method"], run["config"]["method_options"]))
        counts[cell] = counts.get(cell, 0) + 1
    training = [run["config"]["training"] for run in runs]
    words = [
        f"{span([each['epochs'] for each in training])} epochs",
        f"{span([each['samples'] for each in training])} samples",
        f"{span(list(counts.values()))} seed(s)",
        f"{span([100 * each['train_share'] for each in training])} % of the training data",
    ]
    return ", ".join(words)
