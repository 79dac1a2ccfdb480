"""The tables of weight-space inference: sub-networks under the paper's names, and changes in per cent."""

from __future__ import annotations

import pytest

from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Published
from bayesattn.experiments.tables.results import TableResults
from bayesattn.experiments.tables.summary import summarise
from helpers.table_cases import made_up


def test_sub_networks_stand_beside_the_papers_rows() -> None:
    published = TABLES["thesis-3.6"].published()
    assert published["M1", "log_likelihood", "vi-gaussian@attention"] == Published(-26.0034, 0.0006)
    assert TABLES["thesis-3.1"].published()["M1", "log_likelihood", "vi-gaussian"] == Published(-27.9105, 0.0227)


def test_changes_are_against_the_run_of_the_same_seed_and_positive_is_better() -> None:
    runs = [
        made_up("vi-gaussian", 0, -30.0, 1.0),
        made_up("vi-gaussian", 1, -40.0, 1.0),
        made_up("vi-gaussian-improved", 0, -27.0, 1.0),
        made_up("vi-gaussian-improved", 1, -42.0, 1.0),
        made_up("vi-gaussian-improved", 2, -1.0, 1.0),  # nothing to compare it with
    ]
    floors = {"toy-m1": {"log_likelihood": -25.0, "var_mse": 0.0, "mse": 1.0}}
    (part,) = summarise(TABLES["thesis-3.9"], TableResults("thesis-3.9", "small", floors, runs))
    row = next(row for row in part.rows if row.method == "vi-gaussian-improved")
    assert row.cells[0].mean == pytest.approx((10.0 - 5.0) / 2)
    assert row.cells[0].published == Published(-2.66, None)
    assert all(row.method != "floor" for row in part.rows)


def test_what_rows_are_compared_with_is_run_too() -> None:
    configs = TABLES["thesis-3.10"].configs("small", tasks=("pos",), methods=("vi-cauchy-improved",), seeds=1)
    assert [config.method for config in configs] == ["vi-cauchy-improved", "vi-cauchy"]


def test_tables_of_the_same_runs_share_them() -> None:
    for small, large in (("3.2", "3.1"), ("3.5", "3.1"), ("3.7", "3.6"), ("3.8", "3.6")):
        runs = {config.name for config in TABLES[f"thesis-{small}"].configs("small")}
        assert runs <= {config.name for config in TABLES[f"thesis-{large}"].configs("small")}
