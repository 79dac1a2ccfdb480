"""`bayesattn run`, as a person types it."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.commands.run import parse_run
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs import configure
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.base import Training
from helpers.command_line import bayesattn

pytestmark = pytest.mark.usefixtures("empty_folder")
SMALL = ("--epochs", "1", "--samples", "2", "--hidden", "8", "--feedforward", "8")


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
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert result["validation_nll"] == [line["validation_nll"] for line in lines]
    assert result["config"]["method_options"]["prior_concentration"] == 0.5
    bayesattn(monkeypatch, *arguments)
    assert "Had finished before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "toy-m33", "mle"), r"task='toy-m33' is not known. Did you mean 'toy-m3'"),
        (("run", "toy-m3", "attn-dirichlett"), r"method='attn-dirichlett' is not known. Did you mean 'attn-dirichlet'"),
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


@pytest.mark.parametrize("which", ["with a name in common", pytest.param("all", marks=pytest.mark.slow)])
def test_every_task_parses_with_every_method(which: str) -> None:
    """Pairs of the same kinds of options have the same command line: one of each is tried."""
    training = {field.name for field in fields(Training)}
    pairs: dict[Any, tuple[str, str]] = {}
    for task, method in product(TASKS, METHODS):
        of_task, of_method = ({field.name for field in fields(each.options)} for each in (task, method))
        if which == "all" or of_task & of_method or of_method & training:
            pairs[type(task.options), type(method.options)] = (task.name, method.name)
    assert len(pairs) > 50
    for task, method in pairs.values():
        config, _ = parse_run([task, method])
        assert config == configure(task, method), f"the defaults of {task} {method} are not the registries'"


@pytest.mark.parametrize(
    ("arguments", "of_method", "of_task", "of_training"),
    [
        (["multi30k", "variational-sampled", "--method-samples", "4"], {"samples": 4}, {}, {"samples": 1}),
        (["multi30k", "variational-sampled", "--samples", "3"], {"samples": 1}, {}, {"samples": 3}),
        (["daquar", "mc-dropout", "--method-dropout", "0.3"], {"dropout": 0.3}, {"dropout": 0.1}, {}),
        (["daquar", "mc-dropout", "--dropout", "0.3"], {"dropout": 0.1}, {"dropout": 0.3}, {}),
    ],
)
def test_options_of_one_name_are_told_apart(
    arguments: list[str], of_method: dict[str, Any], of_task: dict[str, Any], of_training: dict[str, Any]
) -> None:
    config, _ = parse_run(arguments)
    for options, expected in (
        (config.method_options, of_method),
        (config.task_options, of_task),
        (config.training, of_training),
    ):
        assert {name: getattr(options, name) for name in expected} == expected
    assert type(config.method_options) is type(METHODS.entry(arguments[1]).options), "a run's name depends on its kind"
