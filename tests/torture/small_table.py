"""A table of six runs of a second or less, and a process that makes it with the ordinary command.

python tests/torture/small_table.py FOLDER [JOBS]
"""

from __future__ import annotations

import sys
from pathlib import Path

import bayesattn_command
from bayesattn.experiments.tables import TABLES, Table
from bayesattn.experiments.tables.base import Budget, Dataset, Metric

METRICS = (Metric("ll", "log_likelihood", "log-likelihood", True), Metric("mse", "mse", "MSE", False))
SPENT = Budget(
    seeds=2, training={"epochs": 3, "samples": 2, "train_share": 0.2}, task_options={"hidden": 8, "feedforward": 8}
)
TABLE = Table(
    name="torture",
    title="A small table to be tortured",
    source="here",
    datasets=(Dataset("M1", "toy-m1", METRICS),),
    methods=("mle", "bam-wf", "ensemble"),
    published_file=None,
    budgets={"paper": {"toy-m1": SPENT}},
    method_options={"toy-m1": {"ensemble": {"members": 2}}},  # keeps a checkpoint between its members
)


def make(folder: Path, jobs: int) -> None:
    """`bayesattn table torture`, with everything below `folder`; ends the process."""
    TABLES[TABLE.name] = TABLE
    sys.argv = ["bayesattn", "table", TABLE.name, "--jobs", str(jobs)]
    sys.argv += ["--folder", str(folder / "runs"), "--results", str(folder / "results")]
    bayesattn_command.main()
    sys.exit(0)


if __name__ == "__main__":
    make(Path(sys.argv[1]), int((sys.argv[2:] or ["1"])[0]))
