"""What is left of a queue: counted, and in core hours from runs that have finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesattn.experiments.queue.ledger import Ledger
from bayesattn.experiments.queue.orders import Order, Queue
from bayesattn.experiments.queue.status import status
from bayesattn.experiments.runs import RunConfig, RunFolder
from bayesattn.experiments.tables import TABLES
from helpers.small_queue import TABLE


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setitem(TABLES, TABLE.name, TABLE)
    return Ledger(Queue(tmp_path / "queue"), tmp_path / "runs", tmp_path / "results")


def finish(ledger: Ledger, config: RunConfig, seconds: float) -> None:
    path = RunFolder.of(ledger.folder, config).path
    path.mkdir(parents=True)
    times = {"train_seconds": seconds - 100.0, "evaluate_seconds": 100.0}
    (path / "result.json").write_text(json.dumps({"config": config.to_json(), "metrics": {"mse": 1.0}} | times))


def test_hours_are_those_of_finished_runs_of_the_same_kind_without_what_is_done(ledger: Ledger) -> None:
    ledger.queue.add(Order("short-runs", "short", seeds=4))
    (order,) = ledger.queue.orders()
    of = {(config.method, config.seed): config for config in order.configs.values()}
    (nothing,) = status(ledger)
    assert (nothing.finished, nothing.waiting, nothing.hours_left, nothing.unknown) == (0, 8, 0.0, 8)
    finish(ledger, of["mle", 0], 1800.0)
    finish(ledger, of["mle", 1], 5400.0)
    begun = RunFolder.of(ledger.folder, of["mle", 2])
    begun.path.mkdir(parents=True)
    begun.append_history({"epoch": 1, "seconds": 360.0})
    (now,) = status(ledger)
    assert (now.finished, now.running, now.waiting, now.unknown) == (2, 0, 6, 4)
    assert now.hours_left == pytest.approx(2 * 1.0 - 0.1)
    ledger.queue.record_failure(of["mle", 3].name, "ValueError: no")
    (after,) = status(ledger)
    assert (after.failed, after.waiting) == (1, 5)
    assert after.hours_left == pytest.approx(0.9)


def test_a_run_that_is_the_first_of_its_kind_is_judged_by_its_epochs(ledger: Ledger) -> None:
    order = Order("short-runs", "short", methods=("bam-wc",), seeds=1)
    ledger.queue.add(order)
    (config,) = order.configs.values()
    folder = RunFolder.of(ledger.folder, config)
    with folder.locked():
        folder.write_history([{"epoch": 1, "seconds": 300.0}, {"epoch": 2, "seconds": 600.0}])
        (now,) = status(ledger)
    assert (now.running, now.waiting, now.unknown) == (1, 0, 0)
    assert now.hours_left == pytest.approx((6 - 2) * 300.0 / 3600)
    assert status(ledger)[0].running == 0


def test_a_run_of_two_orders_is_counted_once(ledger: Ledger) -> None:
    ledger.queue.add(Order("short-runs", "short"))
    ledger.queue.add(Order("short-runs", "short", 1, methods=("mle",)))
    assert [each.waiting for each in status(ledger)] == [2, 2]
