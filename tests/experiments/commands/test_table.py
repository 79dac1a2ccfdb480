"""`bayesattn table`, and `bayesattn render` after it, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Budget
from bayesattn.experiments.tables.results import TableResults, write
from helpers.command_line import bayesattn
from helpers.table_cases import made_up

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_table_runs_what_is_missing_keeps_the_figures_and_is_rendered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tiny = Budget(seeds=2, training={"epochs": 1, "samples": 2}, task_options={"hidden": 8, "feedforward": 8})
    monkeypatch.setitem(TABLES["thesis-3.11"].budgets, "tiny", {"toy-m1": tiny, "toy-m2": tiny})
    part = ("--budget", "tiny", "--only", "toy-m1", "--methods", "mle", "bam-wf", "--jobs", "2")
    bayesattn(monkeypatch, "table", "thesis-3.11", *part)
    printed = capsys.readouterr().out
    assert "(−26.09)" in printed
    kept = json.loads((tmp_path / "results/thesis-3.11-tiny.json").read_text())
    assert sorted((run["config"]["method"], run["config"]["seed"]) for run in kept["runs"]) == [
        ("bam-wf", 0),
        ("bam-wf", 1),
        ("mle", 0),
        ("mle", 1),
    ]
    # another part, with the first one's runs gone: its figures stay
    for folder in (tmp_path / "runs").iterdir():
        folder.rename(tmp_path / f"away-{folder.name}")
    bayesattn(
        monkeypatch, "table", "thesis-3.11", "--budget", "tiny", "--only", "toy-m2", "--methods", "mle", "--seeds", "1"
    )
    again = json.loads((tmp_path / "results/thesis-3.11-tiny.json").read_text())
    assert len(again["runs"]) == 5
    assert all(run in again["runs"] for run in kept["runs"])
    bayesattn(monkeypatch, "table", "thesis-3.11", *part)  # nor are they run again
    assert not list((tmp_path / "runs").glob("toy-m1*"))
    (tmp_path / "results/thesis-3.11-tiny.json").unlink()
    bayesattn(monkeypatch, "table", "thesis-3.11", "--budget", "tiny", "--no-run")  # what is there, and no more
    assert len(json.loads((tmp_path / "results/thesis-3.11-tiny.json").read_text())["runs"]) == 1
    bayesattn(monkeypatch, "render")
    assert "### M2" in (tmp_path / "docs/results/bayesian-transformers.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table", "thesis-3.111"), r"table='thesis-3.111' is not known. Did you mean 'thesis-3.11'"),
        (("table",), "Say which table"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        bayesattn(monkeypatch, *arguments)


def test_a_failed_run_of_a_table_is_reported_and_the_exit_is_not_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"1 of 1 runs failed; the same command tries them again"):
        bayesattn(monkeypatch, "table", "thesis-3.12", "--methods", "mle", "--seeds", "1")
    assert "sentences.tsv was not found" in capsys.readouterr().out


def test_what_is_there_is_shown_at_every_budget_and_nothing_empty_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bayesattn(monkeypatch, "table", "thesis-3.11", "--no-run")
    assert "There is nothing of thesis-3.11 at budget paper, small, judge. Without --no-run it is run." in (
        capsys.readouterr().out
    )
    assert not (tmp_path / "results").exists()
    of_one_budget = TableResults("thesis-3.11", "small", {}, [made_up("mle", 0, -26.5, 1.0)])
    write(of_one_budget, tmp_path / "results")
    bayesattn(monkeypatch, "table", "thesis-3.11", "--no-run")
    assert "-26.5" in capsys.readouterr().out.replace("−", "-")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["thesis-3.11-small.json"]


def test_other_epochs_are_tried_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    part = ("--only", "toy-m1", "--methods", "mle", "--seeds", "1", "--epochs", "1")
    bayesattn(monkeypatch, "table", "thesis-3.11", *part)
    assert "Not kept in the results" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()
