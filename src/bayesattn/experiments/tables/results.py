"""The kept results of a table: one small JSON file, every run with its config, seed, commit and cost."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.experiments.runs import RunConfig, RunFolder
from bayesattn.experiments.tables.base import Table
from bayesattn.experiments.tasks import TASKS
from bayesattn.support import json_text
from bayesattn.support.files import write_atomically

KEPT = (
    "config",
    "metrics",
    "train_seconds",
    "evaluate_seconds",
    "seconds_per_step",
    "parameters",
    "validation_nll",
    "commit",
    "version",
    "torch",
    "finished",
)


@dataclass(frozen=True)
class TableResults:
    """The finished runs of a table at one budget, and the floors of its tasks."""

    table: str
    budget: str
    floors: dict[str, dict[str, float]]
    runs: list[dict[str, Any]]

    def of(self, task: str, method: str, options: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The runs of one cell, one for each seed; of those of a method, the ones with these options."""
        runs = [run for run in self.runs if (run["config"]["task"], run["config"]["method"]) == (task, method)]
        return [run for run in runs if (options or {}).items() <= run["config"]["method_options"].items()]

    @functools.cached_property
    def configs(self) -> list[RunConfig]:
        """What was run, in the order of the runs. What several share is read once."""
        found: list[RunConfig] = []
        of_tasks: dict[str, RunConfig] = {}
        of_cells: dict[str, RunConfig] = {}
        for values in [run["config"] for run in self.runs]:
            task = repr((values["task"], values["training"], values["task_options"]))
            cell = repr((task, values["method"], values["method_options"]))
            if task not in of_tasks:
                of_tasks[task] = of_cells[cell] = RunConfig.from_json(values)
            elif cell not in of_cells:
                of_cells[cell] = of_tasks[task].with_method(values["method"], values["method_options"])
            found.append(of_cells[cell].with_seed(values["seed"]))
        return found

    @functools.cached_property
    def by_name(self) -> dict[str, dict[str, Any]]:
        """The runs by the names of their configs."""
        return {config.name: run for config, run in zip(self.configs, self.runs, strict=True)}


def file_name(table: str, budget: str) -> str:
    """The name of the file in the results folder."""
    return f"{table}.json" if budget == "paper" else f"{table}-{budget}.json"


def collect(
    table: Table, budget: str, configs: Iterable[RunConfig], folder: Path, kept: TableResults | None = None
) -> TableResults:
    """What of `configs` has finished in `folder`, and else, of the same runs, what was `kept` before."""
    before = kept.by_name if kept else {}
    runs = []
    for config in configs:
        result = RunFolder.of(folder, config).result() or before.get(config.name)
        if result is not None:
            runs.append({key: result[key] for key in KEPT if key in result})  # older results lack some
    tasks = dict.fromkeys(run["config"]["task"] for run in runs)
    known = kept.floors if kept else {}
    floors = {task: floor for task in tasks if (floor := known.get(task) or TASKS.create(task).floor()) is not None}
    return TableResults(table.name, budget, floors, runs)


def write(results: TableResults, folder: Path) -> Path:
    """Keep the results: readable, with one line for each run."""
    head = {"table": results.table, "budget": results.budget, "floors": results.floors}
    lines = ",\n".join("    " + json.dumps(run, sort_keys=True) for run in results.runs)
    text = json.dumps(head, indent=2)[:-2] + ',\n  "runs": [\n' + lines + "\n  ]\n}\n"
    path = Path(folder) / file_name(results.table, results.budget)
    write_atomically(path, text)
    return path


def read(path: Path) -> TableResults:
    """Results that `write` kept."""
    try:
        values = json_text.read(Path(path))
        results = TableResults(values["table"], values["budget"], values["floors"], values["runs"])
        results.configs  # noqa: B018  they are read here, so that a damaged one is said with the name of the file
        for metrics in [run["metrics"] for run in results.runs]:
            if not {type(value) for value in metrics.values()} <= {int, float}:
                raise ValueError(f"the metrics of a run are not numbers: {str(metrics)[:100]}")
        return results
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ValueError(
            f"{path} is not a file of results ({type(problem).__name__}: {problem}): write it anew with `bayesattn table`."
        ) from None
