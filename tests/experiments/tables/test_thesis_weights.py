"""The tables of weight-space inference: sub-networks under the paper's names, and changes in per cent."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Published
from bayesattn.experiments.tables.results import TableResults, read
from bayesattn.experiments.tables.summary import summarise
from helpers.table_cases import made_up

RESULTS = Path(__file__).parents[3] / "results"


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


def test_the_kl_is_estimated_with_the_thesiss_draws() -> None:
    """2.6.1.2: "we draw 30 posterior samples to compute the predictive distribution and KL divergence"; 10 on POS and MNIST."""
    for table, row, budgets in (
        ("thesis-3.1", "vi-cauchy", ("paper", "small")),
        ("thesis-3.6", "vi-cauchy@attention", ("paper", "small")),
        ("thesis-3.9", "vi-student-improved", ("paper",)),
    ):
        for budget in budgets:
            configs = TABLES[table].configs(budget, methods=[row], seeds=1)
            draws = {c.task: c.method_options.kl_samples for c in configs if c.method == row}
            assert draws == {"pos": 10, "mnist": 10, **{f"toy-m{number}": 30 for number in range(1, 6)}}


def test_kept_runs_with_one_draw_of_the_kl_are_rows_that_say_so() -> None:
    kept = read(RESULTS / "thesis-3.1-small.json")
    row = "vi-cauchy, KL of one draw"
    named = {config.name for config in TABLES["thesis-3.1"].configs("small", methods=[row])}
    old = {name for name, run in kept.by_name.items() if run["config"]["method"] == "vi-cauchy"}
    one_draw = {name for name in old if kept.by_name[name]["config"]["method_options"]["kl_samples"] == 1}
    assert one_draw
    assert one_draw <= named
    (first, *_) = summarise(TABLES["thesis-3.1"], kept)
    seeds = {each.method: each.seeds for each in first.rows}
    assert seeds[row] == 2
    changes = read(RESULTS / "thesis-3.9-small.json")
    assert set(changes.by_name) <= {config.name for config in TABLES["thesis-3.9"].configs("small")}


def test_tables_of_the_same_runs_share_them() -> None:
    for small, large in (("3.2", "3.1"), ("3.5", "3.1"), ("3.7", "3.6"), ("3.8", "3.6")):
        runs = {config.name for config in TABLES[f"thesis-{small}"].configs("small")}
        assert runs <= {config.name for config in TABLES[f"thesis-{large}"].configs("small")}


def test_figure_3_10_is_on_the_thesiss_series() -> None:
    assert {"toy-m3", "toy-m5"} <= set(TABLES["prior-scale"].tasks())


def test_the_larger_ambiguity_test_shares_its_runs_with_the_thesiss_tables() -> None:
    runs = {config.name for config in TABLES["thesis-ambiguity"].configs("small")}
    for table in ("thesis-3.2", "thesis-3.12"):
        rows = [row for row in TABLES[table].methods if row in TABLES["thesis-ambiguity"].methods]
        assert {config.name for config in TABLES[table].configs("small", methods=rows)} <= runs


def test_the_thesiss_variance_error_stands_beside_ours_given_the_last_value() -> None:
    runs = [made_up("mle", 0, -27.0, 1.0)]
    runs[0]["config"]["task"] = "toy-m4"
    runs[0]["metrics"] |= {"var_mse_given_last": 0.7, "var_mse": 0.2}
    floors = {"toy-m4": {"var_mse_given_last": 0.6, "var_mse": 0.0}}
    (part,) = summarise(TABLES["thesis-variance"], TableResults("thesis-variance", "small", floors, runs))
    row = next(row for row in part.rows if row.method == "mle")
    assert [(cell.mean, cell.published) for cell in row.cells] == [(0.7, Published(1.0282, 0.0)), (0.2, None)]
