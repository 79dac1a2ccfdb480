"""A paper's table: which runs it needs, and what the paper printed."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from operator import itemgetter
from typing import Any

from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs import RunConfig, configure
from bayesattn.support import checks


@dataclass(frozen=True)
class Metric:
    """A figure: its name in the published table, in our results, in print, and which way is better."""

    published: str
    ours: str
    title: str
    higher_is_better: bool | None
    """None where neither is."""
    relative_to: str | None = None
    """A method: figures, ours and the paper's, are given as ratios to those of this method."""
    scale: float = 1.0
    """What ours is multiplied by for the published unit, such as percent."""
    relative: bool = False
    """Our figure is the change against the method that the row is compared with, in per cent; above 0 is better."""


@dataclass(frozen=True)
class Dataset:
    """The part of a table that is about one data set: our task, and its figures."""

    label: str
    task: str
    metrics: tuple[Metric, ...]
    beside: str | None = None
    """Another data set, whose published figures are set beside ours because there are none of this one."""
    not_run: str | None = None
    """Why there may be no runs of it. Then the paper's figures are shown without ours."""


@dataclass(frozen=True)
class Mark:
    """What a row must reach on a task before the other rows can be judged: its model has learned the task."""

    row: str
    figure: str
    """One of our results, or what `summary.figure` computes."""
    bound: float
    words: str
    """The figure and its bound as a person reads them."""
    at_least: bool = True


@dataclass(frozen=True)
class Budget:
    """What is spent on the runs of one task: changes to its defaults, and how many seeds (0 leaves the task out)."""

    seeds: int = 3
    training: dict[str, Any] = field(default_factory=dict)
    task_options: dict[str, Any] = field(default_factory=dict)
    method_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Method → options that differ from the table's."""
    row_seeds: dict[str, int] = field(default_factory=dict)
    """Rows that have another number of seeds."""
    row_training: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Row → changes to the training that are its own, such as a learning rate chosen for it on validation examples."""
    marks: tuple[Mark, ...] = ()
    """What its plain model must reach."""

    def seeds_of(self, row: str) -> int:
        """How many seeds a row has."""
        return self.row_seeds.get(row, self.seeds)


@dataclass(frozen=True)
class Variant:
    """A row that is a method with options of its own."""

    method: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Published:
    """A printed figure and its printed standard deviation."""

    value: float
    spread: float | None


@dataclass(frozen=True)
class Table:
    """A table. `budgets` has smaller ones by name, each as task → budget; "paper" is what the paper spent, and may be there too."""

    name: str
    title: str
    source: str
    datasets: tuple[Dataset, ...]
    methods: tuple[str, ...]
    published_file: str | None
    """Of the figures that the paper printed; None for a table that is not a paper's."""
    budgets: dict[str, dict[str, Budget]] = field(default_factory=dict)
    method_options: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Task → method → options that differ from the method's defaults."""
    reference: str = "mle"
    """The method whose cost the others' is given as a ratio to."""
    variants: dict[str, Variant] = field(default_factory=dict)
    """Of `methods`, those that are rows of one method with several options; the others are names of methods."""
    published_names: dict[str, str] = field(default_factory=dict)
    """Method → its name in the published table, where it has another one there."""
    compared_with: dict[str, str] = field(default_factory=dict)
    """Method → the method that its relative figures are compared with; its runs are needed too, but it has no row."""

    def variant(self, row: str) -> Variant:
        """The method of a row, and its options."""
        return self.variants.get(row, Variant(row, {}))

    def options_of(self, task: str, row: str, budget: str) -> dict[str, Any]:
        """The options of a row's method on one task, where they are not the method's defaults."""
        own = self.method_options.get(task, {}).get(row, {})
        return own | self.budget_of(task, budget).method_options.get(row, {}) | self.variant(row).options

    def with_methods(self, methods: Sequence[str]) -> Table:
        """The table with a further row for each of these methods that it has none for."""
        rows = list(dict.fromkeys([*self.methods, *methods]))
        if len(rows) == len(self.methods):
            return self
        for row in rows[len(self.methods) :]:
            METHODS.entry(row)
        return replace(self, methods=tuple(rows))

    def budget_of(self, task: str, budget: str) -> Budget:
        """The budget of one task."""
        checks.one_of("budget", budget, self.budget_names())
        return self.budgets.get(budget, {}).get(task, Budget())

    def budget_names(self) -> list[str]:
        """The budgets that it can be run with."""
        return list(dict.fromkeys(["paper", *self.budgets]))

    def tasks(self) -> list[str]:
        """The tasks of its data sets, each once."""
        return list(dict.fromkeys(dataset.task for dataset in self.datasets))

    def configs(
        self,
        budget: str = "paper",
        *,
        seeds: int | None = None,
        tasks: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        epochs: int | None = None,
    ) -> list[RunConfig]:
        """The runs that the table needs, each once, first seeds first."""
        for task in tasks or ():
            checks.one_of("only", task, self.tasks())
        for method in methods or ():
            checks.one_of("method", method, self.methods)
        rows = list(methods or self.methods)
        needed = dict.fromkeys([*rows, *(self.compared_with[row] for row in rows if row in self.compared_with)])
        found: list[tuple[int, RunConfig]] = []
        for task in tasks or self.tasks():
            spent = self.budget_of(task, budget)
            if spent.seeds == 0 and not tasks:
                continue  # other seeds are asked for of what the budget runs; a task that it leaves out must be named
            for row in needed:
                count = spent.seeds_of(row) if seeds is None else checks.whole("seeds", seeds)
                found += [(seed, self._config(budget, task, row, epochs, seed)) for seed in range(count)]
        return list({config.name: config for _, config in sorted(found, key=itemgetter(0))}.values())

    def _config(self, budget: str, task: str, row: str, epochs: int | None, seed: int) -> RunConfig:
        """The run of one cell: made once, so that its name is computed once."""
        of_seeds = self._configs.setdefault((budget, task, row, epochs), {})
        if seed not in of_seeds:
            any_seed = next(iter(of_seeds.values()), None) or self._configured(budget, task, row, epochs)
            of_seeds[seed] = any_seed.with_seed(seed)
        return of_seeds[seed]

    def _configured(self, budget: str, task: str, row: str, epochs: int | None) -> RunConfig:
        """A run of one cell."""
        method, options = self.variant(row).method, self.options_of(task, row, budget)
        spent = self.budget_of(task, budget)
        for (of_budget, of_task, of_row, of_epochs), runs in self._configs.items():
            same = spent.row_training.get(row) == spent.row_training.get(of_row)
            if runs and same and (of_budget, of_task, of_epochs) == (budget, task, epochs):
                return next(iter(runs.values())).with_method(method, options)
        training = spent.training | spent.row_training.get(row, {}) | ({} if epochs is None else {"epochs": epochs})
        return configure(task, method, training=training, task_options=spent.task_options, method_options=options)

    @functools.cached_property
    def _configs(self) -> dict[tuple[str, str, str, int | None], dict[int, RunConfig]]:
        return {}

    def published(self) -> dict[tuple[str, str, str], Published]:
        """(data set, metric, method) → what the paper printed; methods under our names."""
        if self.published_file is None:
            return {}
        ours = {theirs: name for name, theirs in self.published_names.items()}
        text = resources.files("bayesattn.experiments.tables").joinpath("published", self.published_file).read_text()
        return {
            (row["dataset"], row["metric"], ours.get(row["method"], row["method"])): Published(
                float(row["value"]), float(row["std"]) if row["std"] else None
            )
            for row in csv.DictReader(text.splitlines())
        }
