"""A table of short runs, and a queue of them worked on by a process that may be killed."""

from __future__ import annotations

import os
import signal
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from bayesattn.experiments.queue.orders import Queue
from bayesattn.experiments.queue.work import work
from bayesattn.experiments.runs import RunConfig, RunFolder
from bayesattn.experiments.tables import TABLES, Budget, Dataset, Metric, Table

SPENT = Budget(2, {"epochs": 6, "samples": 2}, {"hidden": 8, "feedforward": 8})

TABLE = Table(
    name="short-runs",
    title="Short runs",
    source="ours",
    datasets=(Dataset("M1", "toy-m1", (Metric("mse", "mse", "MSE", False),)),),
    methods=("mle", "bam-wc"),
    published_file=None,
    budgets={
        "short": {"toy-m1": SPENT},
        "broken": {"toy-m1": Budget(1, SPENT.training | {"epochs": 1}, {"hidden": 0})},
    },
)


def work_on(folder: str, jobs: int) -> None:
    """What `bayesattn queue work` does, in a process of the tests' server of processes."""
    forkserver._forkserver.ensure_running = lambda: (
        None
    )  # that server is used for the runs too: no second one imports torch
    TABLES[TABLE.name] = TABLE
    place = Path(folder)
    work(Queue(place / "queue"), place / "runs", place / "results", jobs=jobs)


def without_times(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Configs and figures."""
    return [{name: run[name] for name in ("config", "metrics", "parameters")} for run in results]


def lines_of_history(folder: Path, configs: list[RunConfig]) -> int:
    """Epochs that these runs have done."""
    return sum(len(RunFolder.of(folder, config).history()) for config in configs)


def kill_runs(folder: Path) -> None:
    """Kill the processes that work on runs below `folder`: those that have a run's lock open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [os.readlink(each) for each in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(name.startswith(str(folder)) and name.endswith(".lock") for name in files):
            os.kill(int(process.name), signal.SIGKILL)
