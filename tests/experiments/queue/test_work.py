"""A queue is worked on: by priority, killed and paused and gone on with; results are kept at once, failures recorded."""

from __future__ import annotations

import json
import multiprocessing
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from bayesattn.experiments.queue.orders import Order, Queue
from bayesattn.experiments.queue.work import Standing, work
from bayesattn.experiments.runs import RunFolder, run
from bayesattn.experiments.runs.workers import PRELOADED, RunOutcome
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.results import read
from helpers.small_queue import TABLE, kill_runs, lines_of_history, without_times, work_on


@pytest.fixture(autouse=True)
def _with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, TABLE.name, TABLE)


def started(place: Path, jobs: int) -> ForkServerProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, "helpers.small_queue"])
    process = context.Process(target=work_on, args=(str(place), jobs))
    process.start()
    return process


def kept(place: Path) -> list[dict]:
    return read(place / "results" / "short-runs-short.json").runs


@pytest.mark.slow
def test_killed_ten_times_it_loses_and_repeats_nothing(tmp_path: Path) -> None:
    order = Order("short-runs", "short")
    configs = list(order.configs.values())
    undisturbed = without_times([run(config, tmp_path / "alone") for config in configs])
    place = tmp_path / "killed"
    Queue(place / "queue").add(order)
    written: dict[str, bytes] = {}
    for kill in range(10):
        before = lines_of_history(place / "runs", configs)
        process = started(place, jobs=1 + kill % 2)
        while process.is_alive() and lines_of_history(place / "runs", configs) < before + 1 + kill % 3:
            time.sleep(0.01)
            if (count := lines_of_history(place / "runs", configs)) < before:
                before = count  # a run that was killed before its first checkpoint begins anew
        process.kill()
        process.join()
        if kill % 3 == 1:
            kill_runs(place / "runs")  # else they notice that they are alone, and stop by themselves
        for config in configs:
            result = RunFolder.of(place / "runs", config).path / "result.json"
            if result.exists():
                assert written.setdefault(config.name, result.read_bytes()) == result.read_bytes()
    process = started(place, jobs=2)
    process.join()
    assert process.exitcode == 0
    assert without_times(kept(place)) == undisturbed
    for config in configs:
        folder = RunFolder.of(place / "runs", config)
        assert [line["epoch"] for line in folder.history()] == list(range(1, 7))
        assert written.get(config.name) in (None, (folder.path / "result.json").read_bytes())
    assert not Queue(place / "queue").failures()


def test_the_most_urgent_come_first_results_are_kept_at_once_and_a_failure_stops_nothing(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    queue.add(Order("short-runs", "short", priority=1, methods=("mle",)))
    queue.add(Order("short-runs", "broken", priority=2, methods=("mle",)))  # no head fits into half a unit
    queue.add(Order("short-runs", "short", priority=3, methods=("bam-wc",), seeds=1))
    seen: list[tuple[str, int]] = []

    def report(outcome: RunOutcome) -> None:
        seen.append((outcome.config.method, len(kept(tmp_path))))

    work(queue, tmp_path / "runs", tmp_path / "results", on_outcome=report)
    assert seen == [("bam-wc", 1), ("mle", 1), ("mle", 2), ("mle", 3)]
    (failed,) = queue.failures()
    assert failed in queue.orders()[1].configs
    assert "Error" in queue.failures()[failed]
    again: list[RunOutcome] = []
    work(queue, tmp_path / "runs", tmp_path / "results", on_outcome=again.append)
    assert again == [], "what failed is not tried again by itself"
    assert queue.retry() == 1
    work(queue, tmp_path / "runs", tmp_path / "results", on_outcome=again.append)
    assert [outcome.config.name for outcome in again] == [failed]


def test_a_paused_queue_stops_its_runs_and_goes_on_exactly(tmp_path: Path) -> None:
    order = Order("short-runs", "short", methods=("bam-wc",), seeds=1)
    (config,) = order.configs.values()
    alone = run(config, tmp_path / "alone")
    queue = Queue(tmp_path / "queue")
    queue.add(order)
    folder = RunFolder.of(tmp_path / "runs", config)
    quiet: list[Standing] = []

    def look(standing: Standing) -> None:
        if not quiet and folder.history():
            queue.pause()
        if standing.paused and not standing.running:
            quiet.append(standing)
            assert not folder.is_worked_on()
            assert folder.result() is not None or folder.read_checkpoint() is not None
            queue.resume()

    work(queue, tmp_path / "runs", tmp_path / "results", on_look=look)
    assert not queue.is_paused
    assert kept(tmp_path)[0]["metrics"] == alone["metrics"]
    assert [line["loss"] for line in folder.history()] == [
        line["loss"] for line in RunFolder.of(tmp_path / "alone", config).history()
    ]


def test_what_another_queue_works_on_is_refused(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    with queue.worked_on(), pytest.raises(ValueError, match=r"Another process works on the queue .* --queue"):
        work(Queue(tmp_path / "queue"), tmp_path / "runs", tmp_path / "results")


def test_results_that_were_kept_elsewhere_are_not_computed_again(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    queue.add(Order("short-runs", "short", methods=("mle",), seeds=1))
    work(queue, tmp_path / "runs", tmp_path / "results")
    seen: list[RunOutcome] = []
    work(queue, tmp_path / "other-runs", tmp_path / "results", on_outcome=seen.append)
    assert seen == []
    assert json.loads((tmp_path / "results" / "short-runs-short.json").read_text())["runs"]
