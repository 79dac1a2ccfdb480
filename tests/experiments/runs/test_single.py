"""One run: its folder, its result, killed and continued, in two processes, loaded again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.runs import RunFolder, configure, load_run, run
from bayesattn.experiments.runs.single import commit
from bayesattn.experiments.runs.training import Trainer
from helpers.processes import started

SMALL = {"hidden": 8, "feedforward": 8}


def test_a_run_writes_its_folder_and_is_never_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("toy-m1", "bam-wf", training={"epochs": 2, "samples": 2}, task_options=SMALL)
    result = run(config, tmp_path)
    path = tmp_path / config.name
    names = {each.name for each in path.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "model.safetensors", "result.json", ".lock"}
    assert json.loads((path / "config.json").read_text()) == config.to_json() == result["config"]
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    for line in lines:
        assert line["loss"] == pytest.approx(line["nll"] + line["kl"])
    monkeypatch.setattr(Trainer, "fit", None)
    (path / "checkpoint.pt").write_bytes(b"killed after its result and before this was removed")
    assert run(config, tmp_path) == result
    assert {each.name for each in path.iterdir()} == names


def test_the_commit_is_that_of_the_code_whatever_became_of_results(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        person = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *person, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    source = tmp_path / "src"
    source.mkdir()
    git("init", "--quiet")
    assert commit(source) == "unknown"
    for file in (source / "code.py", tmp_path / "results.json"):
        file.write_text("1")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    head = git("rev-parse", "--short=12", "HEAD").strip()
    assert commit(source) == head
    (tmp_path / "results.json").write_text("2")
    assert commit(source) == head
    (source / "code.py").write_text("2")
    assert commit(source) == f"{head}-dirty"


def test_a_loaded_run_predicts_as_it_did(tmp_path: Path) -> None:
    config = configure("toy-m1", "ensemble", training={"epochs": 2}, task_options=SMALL, method_options={"members": 2})
    result = run(config, tmp_path)
    loaded = load_run(tmp_path / config.name)
    splits = loaded.task.load()
    assert loaded.task.evaluate(loaded.predict, splits).metrics == pytest.approx(result["metrics"], rel=1e-6)


def test_a_changed_folder_is_noticed_before_a_model_is_made(tmp_path: Path) -> None:
    config = configure("toy-m1", "mle", training={"epochs": 1}, task_options=SMALL)
    run(config, tmp_path)
    path = tmp_path / config.name
    result, weights = (path / "result.json").read_text(), (path / "model.safetensors").read_bytes()
    (path / "result.json").write_text(result.replace('"hidden": 8', '"hidden": 800000000'))
    with pytest.raises(ValueError, match=r"config.json and result.json describe different runs"):
        load_run(path)
    for file in ("config.json", "result.json"):
        (path / file).write_text((path / file).read_text().replace('"toy-m1"', '"yot-m1"'))
    (path / "config.json").unlink()
    with pytest.raises(
        ValueError, match=r"result.json does not describe a run of this version .*'yot-m1' is not known"
    ):
        load_run(path)
    (path / "result.json").write_text(result)
    (path / "model.safetensors").write_bytes(weights.replace(b"0.", b"1."))
    with pytest.raises(ValueError, match=r"(?s)model.safetensors is not the model of this run: .*Missing key"):
        load_run(path)


def test_a_folder_without_a_result_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no finished run: result.json is missing"):
        load_run(tmp_path)


def test_missing_data_leaves_no_config_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "nothing"))
    config = configure("pos", "mle")
    with pytest.raises(DataError, match="was not found"):
        run(config, tmp_path)
    assert {each.name for each in (tmp_path / config.name).iterdir()} == {".lock"}


def command(folder: Path, *options: str) -> list[str]:
    budget = ["--epochs", "8", "--samples", "2", "--hidden", "8", "--feedforward", "8", "--checkpoint-seconds", "0"]
    return [*options, "-m", "bayesattn", "run", "toy-m1", "attn-dirichlet", *budget, "--folder", str(folder)]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    config = configure("toy-m1", "attn-dirichlet", training={"epochs": 8, "samples": 2}, task_options=SMALL)
    undisturbed = run(config, tmp_path / "whole")
    folder = RunFolder.of(tmp_path / "killed", config)
    with started(command(tmp_path / "killed"), stdout=subprocess.DEVNULL) as process:
        while not (folder.path / "checkpoint.pt").exists():  # it is in the middle of the training
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert folder.result() is None
    subprocess.run([sys.executable, *command(tmp_path / "killed")], check=True, stdout=subprocess.DEVNULL)
    result = folder.result()
    assert result is not None
    assert result["metrics"] == undisturbed["metrics"]


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    """`accelerate launch`: with no noise, two halves of each batch give the gradient of the whole; the last batch has one example."""
    training = {"epochs": 2, "batch_size": 47, "samples": 1}
    config = configure("toy-m1", "mle", training=training, task_options=SMALL)
    run(config, tmp_path / "one")
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    launch = [*launch, "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    options = ["--epochs", "2", "--batch-size", "47", "--samples", "1", "--hidden", "8", "--feedforward", "8"]
    finished = subprocess.run(
        [
            sys.executable,
            *launch,
            "-m",
            "bayesattn",
            "run",
            "toy-m1",
            "mle",
            *options,
            "--folder",
            str(tmp_path / "two"),
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    one, two = (RunFolder.of(tmp_path / name, config) for name in ("one", "two"))
    result = two.result()
    assert result is not None
    assert result["processes"] == 2
    single = one.result()
    assert single is not None
    assert result["metrics"] == pytest.approx(single["metrics"], rel=1e-4)
    losses = [
        [json.loads(line)["loss"] for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
        for folder in (one, two)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    first, second = one.read_model(), two.read_model()
    for key, value in first.items():
        if not key.endswith("in_proj_bias"):  # the keys' bias has no gradient but rounding, which Adam makes steps of
            torch.testing.assert_close(second[key], value, rtol=1e-3, atol=1e-4)
