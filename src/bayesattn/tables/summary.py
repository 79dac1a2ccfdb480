"""From runs to figures: means and standard errors over seeds, the paper's figure, the difference, the cost."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from bayesattn.tables.base import Dataset, Metric, Published, Table
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


def summarise(table: Table, results: TableResults) -> list[Part]:
    """The table's data sets that have runs, each with a row for every method that has."""
    published = table.published()
    parts = []
    for dataset in table.datasets:
        rows = [_row(table, dataset, method, results, published) for method in table.methods]
        rows = [row for row in rows if row.seeds or any(cell.published for cell in row.cells)]
        runs = [run for method in table.methods for run in results.of(dataset.task, method)]
        if not runs:
            continue
        floor = results.floors.get(dataset.task)
        if floor is not None and not any(metric.relative for metric in dataset.metrics):
            cells = tuple(Cell(floor[metric.ours], None, None) for metric in dataset.metrics)
            rows.insert(0, Row(FLOOR, 0, cells, None))
        parts.append(Part(dataset, tuple(rows), _spent(runs)))
    return parts


def _row(
    table: Table,
    dataset: Dataset,
    method: str,
    results: TableResults,
    published: dict[tuple[str, str, str], Published],
) -> Row:
    runs = results.of(dataset.task, method)
    others = results.of(dataset.task, table.compared_with[method]) if method in table.compared_with else []
    cells = tuple(
        _cell(_figures(metric, runs, others), published.get((dataset.label, metric.published, method)))
        for metric in dataset.metrics
    )
    mine, mle = _seconds(runs), _seconds(results.of(dataset.task, "mle"))
    return Row(method, len(runs), cells, mine / mle if mine and mle else None)


def _figures(metric: Metric, runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[float]:
    """The figure of every run; of a relative metric, its change against the run of the same seed, in per cent."""
    values = {run["config"]["seed"]: run["metrics"][metric.ours] for run in runs}
    if not metric.relative:
        return list(values.values())
    before = {run["config"]["seed"]: run["metrics"][metric.ours] for run in others}
    sign = 1.0 if metric.higher_is_better else -1.0
    return [
        sign * 100.0 * (value - before[seed]) / abs(before[seed]) for seed, value in values.items() if seed in before
    ]


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
        counts[run["config"]["method"]] = counts.get(run["config"]["method"], 0) + 1
    training = [run["config"]["training"] for run in runs]
    words = [
        f"{span([each['epochs'] for each in training])} epochs",
        f"{span([each['samples'] for each in training])} samples",
        f"{span(list(counts.values()))} seed(s)",
        f"{span([100 * each['train_share'] for each in training])} % of the training data",
    ]
    return ", ".join(words)
