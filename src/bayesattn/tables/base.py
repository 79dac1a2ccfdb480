"""A paper's table: which runs it needs, and what the paper printed."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from bayesattn import checks
from bayesattn.runs import RunConfig, configure


@dataclass(frozen=True)
class Metric:
    """A figure: its name in the published table, in our results, in print, and which way is better."""

    published: str
    ours: str
    title: str
    higher_is_better: bool
    relative: bool = False
    """Our figure is the change against the method that the row is compared with, in per cent; above 0 is better."""


@dataclass(frozen=True)
class Dataset:
    """The part of a table that is about one data set: our task, and its figures."""

    label: str
    task: str
    metrics: tuple[Metric, ...]


@dataclass(frozen=True)
class Budget:
    """What is spent on the runs of one task: changes to its defaults, and how many seeds."""

    seeds: int = 3
    training: dict[str, Any] = field(default_factory=dict)
    task_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A printed figure and its printed standard deviation."""

    value: float
    spread: float | None


@dataclass(frozen=True)
class Table:
    """A table. `budgets` has smaller ones by name, each as task → budget; "paper" is what the paper spent."""

    name: str
    title: str
    source: str
    datasets: tuple[Dataset, ...]
    methods: tuple[str, ...]
    published_file: str
    budgets: dict[str, dict[str, Budget]] = field(default_factory=dict)
    method_options: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Task → method → options that differ from the method's defaults."""
    published_names: dict[str, str] = field(default_factory=dict)
    """Method → its name in the published table, where it has another one there."""
    compared_with: dict[str, str] = field(default_factory=dict)
    """Method → the method that its relative figures are compared with; its runs are needed too, but it has no row."""

    def budget_of(self, task: str, budget: str) -> Budget:
        """The budget of one task."""
        checks.one_of("budget", budget, ["paper", *self.budgets])
        return self.budgets.get(budget, {}).get(task, Budget())

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
        """The runs that the table needs, first seeds first."""
        for task in tasks or ():
            checks.one_of("only", task, self.tasks())
        for method in methods or ():
            checks.one_of("method", method, self.methods)
        rows = list(methods or self.methods)
        needed = dict.fromkeys([*rows, *(self.compared_with[row] for row in rows if row in self.compared_with)])
        found: list[tuple[int, RunConfig]] = []
        for task in tasks or self.tasks():
            spent = self.budget_of(task, budget)
            training = spent.training | ({} if epochs is None else {"epochs": epochs})
            for seed in range(checks.whole("seeds", spent.seeds if seeds is None else seeds)):
                for method in needed:
                    options = self.method_options.get(task, {}).get(method)
                    config = configure(
                        task,
                        method,
                        seed,
                        training=training,
                        task_options=spent.task_options,
                        method_options=options,
                    )
                    found.append((seed, config))
        return [config for _, config in sorted(found, key=lambda pair: pair[0])]

    def published(self) -> dict[tuple[str, str, str], Published]:
        """(data set, metric, method) → what the paper printed; methods under our names."""
        ours = {theirs: name for name, theirs in self.published_names.items()}
        text = resources.files("bayesattn.tables").joinpath("published", self.published_file).read_text()
        return {
            (row["dataset"], row["metric"], ours.get(row["method"], row["method"])): Published(
                float(row["value"]), float(row["std"]) if row["std"] else None
            )
            for row in csv.DictReader(text.splitlines())
        }
