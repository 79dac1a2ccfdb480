"""From runs to figures, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bayesattn.experiments.runs import configure
from bayesattn.experiments.tables import TABLES, Variant
from bayesattn.experiments.tables.base import Budget, Mark
from bayesattn.experiments.tables.printing import as_markdown, in_terminal
from bayesattn.experiments.tables.results import TableResults
from bayesattn.experiments.tables.summary import FLOOR, summarise
from helpers.table_cases import RESULTS, TABLE, made_up


def test_mean_error_difference_and_cost() -> None:
    (part,) = summarise(TABLE, RESULTS)
    rows = {row.method: row for row in part.rows}
    mle = rows["mle"].cells[0]
    assert mle.mean == pytest.approx(-27.0)
    assert mle.error == pytest.approx(1 / 3**0.5)
    assert mle.published is not None
    assert mle.difference == pytest.approx(-27.0 + 26.0895)
    bam = rows["bam-wf"].cells[0]
    assert (bam.mean, bam.error, bam.published, bam.difference) == (-26.5, None, None, None)
    assert rows["bam-wf"].cost == pytest.approx(2.5)
    assert rows["mle"].cost == pytest.approx(1.0)


def test_the_floor_is_the_first_row_and_published_methods_that_did_not_run_are_there() -> None:
    (part,) = summarise(TABLE, RESULTS)
    assert part.rows[0].method == FLOOR
    assert [cell.mean for cell in part.rows[0].cells] == [-25.0, 0.0, 1.0]
    ensemble = next(row for row in part.rows if row.method == "ensemble")
    assert ensemble.seeds == 0
    assert ensemble.cells[0].mean is None
    assert "mc-dropout" not in {row.method for row in part.rows}  # neither run nor published


def test_rows_of_one_method_have_runs_of_their_own_options() -> None:
    """Where the row that tunes an option on each task has, on one of them, the paper's value: the same runs."""
    table = replace(
        TABLE,
        methods=("bam-wf", "bam-wf, tuned"),
        variants={"bam-wf, tuned": Variant("bam-wf", {})},
        method_options={"toy-m1": {"bam-wf": {"k": 10.0}, "bam-wf, tuned": {"k": 100.0}}},
    )

    def run_of(k: float, log_likelihood: float) -> dict[str, Any]:
        config = configure("toy-m1", "bam-wf", 0, method_options={"k": k}).to_json()
        return made_up("bam-wf", 0, log_likelihood, 1.0) | {"config": config}

    results = TableResults(table.name, "paper", {}, [run_of(10.0, -26.0), run_of(100.0, -25.0)])
    (part,) = summarise(table, results)
    assert {row.method: row.cells[0].mean for row in part.rows if row.seeds} == {
        "bam-wf": -26.0,
        "bam-wf, tuned": -25.0,
    }
    same = replace(table, method_options={"toy-m1": {row: {"k": 10.0} for row in table.methods}})
    (part,) = summarise(same, results)
    assert [row.cells[0].mean for row in part.rows if row.seeds] == [-26.0, -26.0]
    assert "1 seed(s)" in part.spent, "a run that two rows share is one seed"
    assert len(same.configs(seeds=1, tasks=["toy-m1"])) == 1


def test_an_option_that_one_row_sets_and_the_other_leaves_at_its_default_tells_them_apart() -> None:
    rows = {"bam-wf": {}, "bam-wf, light": {"kl_weight": 0.01}}
    table = replace(TABLE, methods=tuple(rows), variants={"bam-wf, light": Variant("bam-wf", rows["bam-wf, light"])})
    runs = [
        made_up("bam-wf", 0, figure, 1.0)
        | {"config": configure("toy-m1", "bam-wf", 0, method_options=options).to_json()}
        for figure, options in zip((-26.0, -25.0), rows.values(), strict=True)
    ]
    (part,) = summarise(table, TableResults(table.name, "paper", {}, runs))
    assert [row.cells[0].mean for row in part.rows if row.seeds] == [-26.0, -25.0]


def test_runs_that_were_made_before_an_option_existed_are_seeds_of_the_same_row() -> None:
    runs = [made_up("attn-gaussian", seed, -30.0, 1.0) for seed in range(2)]
    del runs[0]["config"]["method_options"]["kl_rho"]
    (part, *_) = summarise(TABLES["thesis-3.11"], TableResults("thesis-3.11", "small", {}, runs))
    assert ", 2 seed(s)," in part.spent


def test_a_column_that_no_run_and_no_paper_has_is_left_out() -> None:
    runs = [made_up("attn-gaussian", 0, -30.0, 1.0)]
    for metrics in [run["metrics"] for run in runs]:
        del metrics["mse"], metrics["var_mse"]
    ours = replace(TABLES["thesis-3.11"], published_file=None)
    (part, *_) = summarise(ours, TableResults("thesis-3.11", "small", {}, runs))
    assert [metric.ours for metric in part.dataset.metrics] == ["log_likelihood"]
    assert [len(row.cells) for row in part.rows] == [1]


def test_what_was_spent_is_said() -> None:
    (part,) = summarise(TABLE, RESULTS)
    assert part.spent == "100 epochs, 30 samples, 1 to 3 seed(s), 100 % of the training data"


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (Mark("mle", "log_likelihood", -27.5, "likely"), "Mark: mle, likely: reached (-27)."),
        (Mark("mle", "log_likelihood", -26.5, "likely"), "not reached (-27), so nothing can be judged."),
        (Mark("mle", "mse", 1.0, "near", at_least=False), "not reached (2), so nothing can be judged."),
        (Mark("bam-wc", "mse", 1.0, "near"), "no run of it yet, so nothing can be judged."),
        (Mark("mle", "validation_change", 1.0, "flat", at_least=False), "reached (0.5)."),
    ],
)
def test_a_mark_says_whether_the_plain_model_has_learned_its_task(mark: Mark, said: str) -> None:
    table = replace(TABLE, budgets={"paper": {"toy-m1": Budget(marks=(mark,))}})
    course = [9.0, 4.0, 3.99, 3.98]  # from 4 to 3.98 are half a per cent
    results = replace(RESULTS, runs=[run | {"validation_nll": course} for run in RESULTS.runs])
    (part,) = summarise(table, results)
    assert part.marks[0].endswith(said)
    assert said in as_markdown(part)
    assert in_terminal(part).caption.startswith(part.marks[0])
