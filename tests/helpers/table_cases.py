"""A small table with made-up results."""

from __future__ import annotations

from typing import Any

from bayesattn.experiments.runs import configure
from bayesattn.experiments.tables import TABLES, Table
from bayesattn.experiments.tables.results import TableResults

TABLE: Table = TABLES["thesis-3.11"]


def made_up(method: str, seed: int, log_likelihood: float, seconds: float) -> dict[str, Any]:
    metrics = {"log_likelihood": log_likelihood, "var_mse": 0.5, "mse": 2.0}
    return {
        "config": configure("toy-m1", method, seed).to_json(),
        "metrics": metrics,
        "train_seconds": seconds,
        "evaluate_seconds": 1.0,
        "parameters": 10,
        "commit": "abc",
        "version": "0",
        "torch": "2",
        "finished": "2026-01-01T00:00:00+00:00",
    }


RESULTS = TableResults(
    "thesis-3.11",
    "paper",
    {"toy-m1": {"log_likelihood": -25.0, "var_mse": 0.0, "mse": 1.0}},
    [
        made_up("mle", 0, -26.0, 10.0),
        made_up("mle", 1, -27.0, 12.0),
        made_up("mle", 2, -28.0, 8.0),
        made_up("bam-wf", 0, -26.5, 25.0),
    ],
)
