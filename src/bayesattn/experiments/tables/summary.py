"""From runs to figures: means and standard errors over seeds, the paper's figure, the difference, the cost."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesattn.experiments.runs import RunConfig, configure
from bayesattn.experiments.tables.base import Dataset, Mark, Metric, Published, Table
from bayesattn.experiments.tables.results import TableResults
from bayesattn.experiments.tasks import TASKS

FLOOR = "floor"
"""The name of the row of the true process."""

RunsOfRows = Mapping[str, list[dict[str, Any]]]
PublishedFigures = Mapping[tuple[str, str, str], Published]


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
    """Processor time of its training as a ratio to that of the table's reference."""


@dataclass(frozen=True)
class Part:
    """One data set of a table."""

    dataset: Dataset
    rows: tuple[Row, ...]
    spent: str
    """The budget in words."""
    reference: str
    """The method that costs are ratios to."""
    marks: tuple[str, ...] = ()
    """Whether its plain model has learned the task, in words."""

    @property
    def has_published(self) -> bool:
        """Whether the paper printed any of its figures."""
        return any(cell.published for row in self.rows for cell in row.cells)


def summarise(table: Table, results: TableResults) -> list[Part]:
    """The table's data sets that have runs, each with a row for every method that has."""
    published = table.published()
    shared = Counter(table.variant(row).method for row in table.methods)
    made = {id(run): config for config, run in zip(results.configs, results.runs, strict=True)}
    parts = []
    for dataset in table.datasets:
        named = [metric.relative_to for metric in dataset.metrics if metric.relative_to is not None]
        needed = dict.fromkeys([*table.methods, *table.compared_with.values(), *named, table.reference])
        found = {row: _runs(table, dataset, row, results, shared) for row in needed}
        rows = [_row(table, dataset, method, found, published) for method in table.methods]
        rows = [row for row in rows if row.seeds or any(cell.published for cell in row.cells)]
        runs = [run for method in table.methods for run in found[method]]
        if not runs and dataset.not_run is None:
            continue
        dataset, rows = _with_figures(dataset, rows)
        floor = results.floors.get(dataset.task)
        if floor is not None and not any(metric.relative for metric in dataset.metrics):
            cells = tuple(Cell(metric.scale * floor[metric.ours], None, None) for metric in dataset.metrics)
            rows.insert(0, Row(FLOOR, 0, cells, None))
        spent = _spent(runs, made) if runs else f"not run: {dataset.not_run}"
        marks = table.budget_of(dataset.task, results.budget).marks if runs else ()
        said = tuple(_said(mark, found.get(mark.row, [])) for mark in marks)
        parts.append(Part(dataset, tuple(rows), spent, table.reference, said))
    return parts


def runs_of_rows(table: Table, dataset: Dataset, results: TableResults) -> dict[str, list[dict[str, Any]]]:
    """Row → its runs of one data set, one for each seed; rows without any are left out."""
    shared = Counter(table.variant(row).method for row in table.methods)
    found = {row: _runs(table, dataset, row, results, shared) for row in table.methods}
    return {row: runs for row, runs in found.items() if runs}


def _said(mark: Mark, runs: list[dict[str, Any]]) -> str:
    """A mark, and whether it was reached by the mean over seeds."""
    values = [value for value in (figure(run, mark.figure) for run in runs) if value is not None]
    wanted = f"Mark: {mark.row}, {mark.words}"
    if not values:
        return f"{wanted}: no run of it yet, so nothing can be judged."
    mean = statistics.fmean(values)
    if mean >= mark.bound if mark.at_least else mean <= mark.bound:
        return f"{wanted}: reached ({mean:.4g})."
    return f"{wanted}: not reached ({mean:.4g}), so nothing can be judged."


def _with_figures(dataset: Dataset, rows: list[Row]) -> tuple[Dataset, list[Row]]:
    """Without the columns that neither our runs nor the paper have a figure for: older runs lack later ones."""
    chosen = [
        place
        for place in range(len(dataset.metrics))
        if any(row.cells[place].mean is not None or row.cells[place].published for row in rows)
    ]
    if len(chosen) == len(dataset.metrics):
        return dataset, rows
    shorter = dataclasses.replace(dataset, metrics=tuple([dataset.metrics[place] for place in chosen]))
    return shorter, [dataclasses.replace(row, cells=tuple([row.cells[place] for place in chosen])) for row in rows]


def _runs(
    table: Table, dataset: Dataset, method: str, results: TableResults, shared: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Those of a row; rows that share one method are told apart by all their options, defaults among them."""
    variant = table.variant(method)
    if shared[variant.method] == 1:
        return results.of(dataset.task, variant.method, variant.options)
    options = table.options_of(dataset.task, method, results.budget)
    wanted = configure(dataset.task, variant.method, method_options=options).method_options
    of_method = (dataset.task, variant.method)
    both = zip(results.configs, results.runs, strict=True)
    return [run for made, run in both if (made.task, made.method) == of_method and made.method_options == wanted]


def _row(table: Table, dataset: Dataset, method: str, found: RunsOfRows, published: PublishedFigures) -> Row:
    cells = tuple([_cell(table, dataset, metric, method, found, published) for metric in dataset.metrics])
    mine, reference = _seconds(found[method]), _seconds(found[table.reference])
    return Row(method, len(found[method]), cells, mine / reference if mine and reference else None)


def _cell(
    table: Table, dataset: Dataset, metric: Metric, method: str, found: RunsOfRows, published: PublishedFigures
) -> Cell:
    def figures(name: str) -> list[float]:
        values = [figure(run, metric.ours) for run in found[name]]
        return [metric.scale * each for each in values if each is not None]

    def printed(name: str) -> Published | None:
        return published.get((dataset.beside or dataset.label, metric.published, name))

    values, paper = figures(method), printed(method)
    if metric.relative:
        others = found[table.compared_with[method]] if method in table.compared_with else []
        values = _gains(metric, found[method], others)
    if metric.relative_to is not None:
        # ratios have no unit: they compare where seconds on another machine do not
        unit, paper_unit = figures(metric.relative_to), printed(metric.relative_to)
        values = [value / statistics.fmean(unit) for value in values] if unit else []
        paper = Published(paper.value / paper_unit.value, None) if paper and paper_unit else None
    if not values:
        return Cell(None, None, paper)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Cell(statistics.fmean(values), error, paper)


def _gains(metric: Metric, runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[float]:
    """The change of every run's figure against the other run of the same seed, in per cent; above 0 is better."""
    values, before = ({run["config"]["seed"]: run["metrics"][metric.ours] for run in each} for each in (runs, others))
    sign = 1.0 if metric.higher_is_better else -1.0
    return [
        sign * 100.0 * (value - before[seed]) / abs(before[seed]) for seed, value in values.items() if seed in before
    ]


def figure(run: dict[str, Any], name: str) -> float | None:
    """A run's metric, what it cost ("seconds_per_step", "train_seconds", "million_parameters"), or by how many per cent the validation NLL
    of its first model changed over its last two epochs ("validation_change").

    None for a metric that could not be computed there, as METEOR without Java.
    """
    if name == "validation_change":
        course = run.get("validation_nll", [])
        return 100 * abs(course[-1] - course[-3]) / abs(course[-3]) if len(course) > 2 else None
    if name == "million_parameters":
        return run["parameters"] / 1e6
    return run[name] if name in ("seconds_per_step", "train_seconds") else run["metrics"].get(name)


def _seconds(runs: list[dict[str, Any]]) -> float | None:
    return statistics.fmean([run["train_seconds"] for run in runs]) if runs else None


def _spent(runs: list[dict[str, Any]], made: Mapping[int, RunConfig]) -> str:
    """Epochs, seeds and data of these runs, where they differ as a range; and what of the task was changed."""

    def span(values: list[Any]) -> str:
        low, high = min(values), max(values)
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"

    seeds: dict[tuple[str, Any], set[int]] = {}  # two rows may share their runs
    of_objects: dict[
        int, tuple[RunConfig, set[int]]
    ] = {}  # the runs of a cell share their options: those are compared once
    for config in [made[id(run)] for run in runs]:
        of_objects.setdefault(id(config.method_options), (config, set()))[1].add(config.seed)
    for config, found in of_objects.values():  # and not what is written in the run: older ones lack later options
        seeds.setdefault((config.method, config.method_options), set()).update(found)
    training = [run["config"]["training"] for run in runs]
    words = [
        f"{span([each['epochs'] for each in training])} epochs",
        f"{span([each['samples'] for each in training])} samples",
        f"{span([len(each) for each in seeds.values()])} seed(s)",
        f"{span([100 * each['train_share'] for each in training])} % of the training data",
    ]
    return ", ".join([*words, *_changes(runs)])


def _changes(runs: list[dict[str, Any]]) -> list[str]:
    """The task's options that differ from its defaults: a smaller model, a smaller test."""
    defaults = dataclasses.asdict(TASKS.entry(runs[0]["config"]["task"]).options)
    chosen = runs[0]["config"]["task_options"]
    return [f"{name} {value}" for name, value in chosen.items() if value != defaults.get(name)]
