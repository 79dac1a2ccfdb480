"""Kept results: written, read, collected from runs and from what was kept before."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.runs import RunConfig, configure, run
from bayesattn.experiments.tables.results import collect, file_name, read, write
from helpers.table_cases import RESULTS, TABLE, made_up


def test_results_come_back_as_written_with_one_line_for_each_run(tmp_path: Path) -> None:
    path = write(RESULTS, tmp_path)
    assert path.name == "thesis-3.11.json"
    assert read(path) == RESULTS
    assert sum("toy-m1" in line and "mle" in line for line in path.read_text().splitlines()) == 3


def test_a_smaller_budget_has_a_file_of_its_own() -> None:
    assert file_name("thesis-3.11", "small") == "thesis-3.11-small.json"


def test_finished_runs_are_collected_and_kept_ones_stay_unless_their_config_changed(tmp_path: Path) -> None:
    small = {"hidden": 8, "feedforward": 8}
    fresh = configure("toy-m1", "mle", training={"epochs": 1}, task_options=small)
    result = run(fresh, tmp_path)
    wanted = [fresh, *(RunConfig.from_json(each["config"]) for each in RESULTS.runs[:2])]
    collected = collect(TABLE, "paper", wanted, tmp_path, RESULTS)
    assert [each["metrics"] for each in collected.runs] == [
        result["metrics"],
        *(r["metrics"] for r in RESULTS.runs[:2]),
    ]
    assert collected.floors["toy-m1"]["var_mse"] == 0
    assert collect(TABLE, "paper", wanted, tmp_path).runs[0]["commit"] == result["commit"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"runs"', '"rnus"', "KeyError: 'runs'"),
        ('"method": "mle"', '"method": "eml"', "ValueError: method='eml' is not known"),
        ('"mse": 2.0', '"mse": "2"', "ValueError: the metrics of a run are not numbers"),
        ('"config"', '"cnofig"', "KeyError: 'config'"),
        ("{", "[", "ValueError: .*is not JSON"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    path = write(RESULTS, tmp_path)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(ValueError, match=rf"thesis-3.11.json is not a file of results \({message}.*bayesattn table"):
        read(path)


def test_made_up_runs_have_what_is_kept() -> None:
    assert RESULTS.of("toy-m1", "bam-wf") == [made_up("bam-wf", 0, -26.5, 25.0)]
