"""The commands list, run, table and render, as a person types them."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from bayesattn.experiments import cli

SMALL = ("--epochs", "1", "--samples", "2", "--hidden", "8", "--feedforward", "8")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "data"))


def bayesattn(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bayesattn", *arguments])
    cli.main()


def test_list_names_everything_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bayesattn(monkeypatch, "list")
    printed = capsys.readouterr().out
    assert all(
        name in printed for name in ("toy-m5", "pos", "mnist", "digits", "attn-dirichlet-approx-dd", "thesis-3.15")
    )
    assert "missing: ud_ewt/en_ewt-ud-train.conllu" in printed


def test_a_run_prints_its_metrics_and_is_read_the_second_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("run", "toy-m3", "attn-dirichlet", "--seed", "4", "--prior-concentration", "0.5", *SMALL)
    bayesattn(monkeypatch, *arguments)
    first = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert f"{result['metrics']['log_likelihood']:.4f}" in first
    assert result["config"]["seed"] == 4
    assert result["config"]["method_options"]["prior_concentration"] == 0.5
    bayesattn(monkeypatch, *arguments)
    assert "Had finished before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "toy-m33", "mle"), r"task='toy-m33' is not known. Did you mean 'toy-m3'"),
        (("run", "toy-m3", "attn-dirichlett"), r"method='attn-dirichlett' is not known. Did you mean 'attn-dirichlet'"),
        (("table", "thesis-3.111"), r"table='thesis-3.111' is not known. Did you mean 'thesis-3.11'"),
        (("table",), "Say which table"),
        (("render",), r"There are no results in results: make them with `bayesattn table NAME`"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        bayesattn(monkeypatch, *arguments)


def test_an_unknown_option_suggests_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bayesattn(monkeypatch, "run", "toy-m3", "attn-dirichlet", "--prior-concentratio", "2")
    assert "--prior-concentration" in capsys.readouterr().err


def test_an_impossible_value_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bayesattn(monkeypatch, "run", "toy-m3", "mle", "--epochs", "0")
    assert "epochs must be a whole number of at least 1, got 0" in capsys.readouterr().err


def test_every_hyper_parameter_is_in_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bayesattn(monkeypatch, "run", "pos", "bam-wc", "--help")
    printed = capsys.readouterr().out
    assert all(
        name in printed for name in ("--kl-weight", "--k FLOAT", "--beta", "--epochs", "--hidden", "--ambiguity")
    )


def test_damaged_data_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "data/ud_ewt/en_ewt-ud-train.conllu.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"1\tword\n" * 1000)[:-20])
    with pytest.raises(SystemExit, match=r"en_ewt-ud-train.conllu.gz is damaged: .*truncated. Get it from https://"):
        bayesattn(monkeypatch, "run", "pos", "mle", "--no-ambiguity")


def test_a_table_runs_what_is_missing_keeps_the_figures_and_is_rendered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from bayesattn.experiments.tables import TABLES
    from bayesattn.experiments.tables.base import Budget

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
    assert "### M2" in (tmp_path / "docs/results.md").read_text()


def test_a_failed_run_of_a_table_is_reported_and_the_exit_is_not_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"1 of 1 runs failed; the same command tries them again"):
        bayesattn(monkeypatch, "table", "thesis-3.12", "--methods", "mle", "--seeds", "1")
    assert "sentences.tsv was not found" in capsys.readouterr().out


def test_other_epochs_are_tried_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    part = ("--only", "toy-m1", "--methods", "mle", "--seeds", "1", "--epochs", "1")
    bayesattn(monkeypatch, "table", "thesis-3.11", *part)
    assert "Not kept in the results" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


def test_a_report_of_a_table_is_written_and_an_unknown_target_suggests_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from bayesattn.experiments.tables import results as kept_results
    from helpers.table_cases import RESULTS

    with pytest.raises(SystemExit, match=r"There are no results in results: make them with `bayesattn table NAME`"):
        bayesattn(monkeypatch, "report")
    kept_results.write(RESULTS, tmp_path / "results")
    bayesattn(monkeypatch, "report", "-o", "all.html")
    assert (tmp_path / "all.html").as_uri() in capsys.readouterr().out.replace("\n", "")
    assert "−27.00 ± 0.577" in (tmp_path / "all.html").read_text()
    with pytest.raises(SystemExit, match=r"thesis-3\.11"):
        bayesattn(monkeypatch, "report", "thesis-3.1l")
    with pytest.raises(SystemExit, match=r"--sentences goes with one folder of a saved model, got 0 targets"):
        bayesattn(monkeypatch, "report", "--sentences", "some.txt")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished/config.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"unfinished holds no finished run"):
        bayesattn(monkeypatch, "report", "unfinished")
