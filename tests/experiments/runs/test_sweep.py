"""Sweeps: in processes and on Ray; one failure is reported and the others finish."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
from pathlib import Path

import pytest

from bayesattn.experiments.runs import RunConfig, RunFolder, configure, run
from bayesattn.experiments.runs.sweep import sweep
from bayesattn.experiments.runs.workers import RunOutcome, _received

SMALL = {"hidden": 8, "feedforward": 8}


def small(method: str, seed: int = 0) -> RunConfig:
    return configure("toy-m1", method, seed, training={"epochs": 1, "samples": 2}, task_options=SMALL)


def test_a_failed_run_is_reported_and_the_others_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "nothing"))
    configs = [small("mle"), configure("pos", "mle", task_options={"ambiguity": False}), small("bam-lf")]
    before = run(configs[0], tmp_path)
    seen: list[RunOutcome] = []
    outcomes = sweep(configs, tmp_path, jobs=2, on_outcome=seen.append)
    assert outcomes[0].result == before
    assert outcomes[1].result is None
    assert outcomes[1].error is not None
    assert "DataError: ud_ewt/en_ewt-ud-train.conllu was not found" in outcomes[1].error
    assert outcomes[2].result == RunFolder.of(tmp_path, configs[2]).result() is not None
    assert {outcome.config.name for outcome in seen} == {config.name for config in configs}


def test_a_sweep_gives_the_results_of_single_runs(tmp_path: Path) -> None:
    configs = [small("attn-dirichlet", seed) for seed in range(2)]
    swept = sweep(configs, tmp_path / "swept", jobs=2)
    for config, outcome in zip(configs, swept, strict=True):
        assert outcome.result is not None
        assert outcome.result["metrics"] == run(config, tmp_path / "alone")["metrics"]


def test_a_checkpoint_that_a_kill_left_beside_a_result_is_removed(tmp_path: Path) -> None:
    config = small("mle")
    result = run(config, tmp_path)
    checkpoint = tmp_path / config.name / "checkpoint.pt"
    checkpoint.write_bytes(b"left")
    assert sweep([config], tmp_path)[0].result == result
    assert not checkpoint.exists()


def test_a_process_that_dies_is_reported(tmp_path: Path) -> None:
    config = configure("toy-m1", "mle", training={"epochs": 10_000}, task_options=SMALL)

    def kill_when_started() -> None:
        import threading
        import time

        def kill() -> None:
            lock = tmp_path / config.name / "metrics.jsonl"
            while not lock.exists():
                time.sleep(0.05)
            for process in Path("/proc").glob("[0-9]*"):
                files = process / "fd"
                try:
                    open_files = [os.readlink(each) for each in files.iterdir()]
                except OSError:
                    continue
                if str(tmp_path / config.name / ".lock") in open_files:
                    os.kill(int(process.name), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()

    kill_when_started()
    (outcome,) = sweep([config], tmp_path)
    assert outcome.result is None
    assert outcome.error is not None
    assert "ended without a word" in outcome.error


def test_the_number_of_jobs_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs must be a whole number of at least 1, got 0"):
        sweep([], tmp_path, jobs=0)


def test_an_answer_that_is_cut_off_in_the_middle_is_one_failed_run() -> None:
    """The length of a message and half of it, then the end: what a process that is killed while it answers leaves in the pipe."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    os.write(sender.fileno(), struct.pack("!i", 100) + b"half")
    sender.close()
    process = multiprocessing.get_context("forkserver").Process(target=os.getpid)
    process.start()
    outcome = _received(small("mle"), process, receiver)
    assert outcome.result is None
    assert outcome.error == "its process ended without a word (exit code 0)"
