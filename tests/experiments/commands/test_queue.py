"""`bayesattn queue …`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bayesattn.experiments.queue.orders import Order, Queue
from bayesattn.experiments.tables import TABLES
from bayesattn_command import main
from helpers.small_queue import TABLE


def test_a_queue_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TABLES, TABLE.name, TABLE)
    monkeypatch.chdir(tmp_path)

    def say(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["bayesattn", *words])
        main()
        return capsys.readouterr().out

    ordered = say("queue", "add", "short-runs", "--budget", "short", "--methods", "mle", "--priority", "2")
    assert "short-runs, budget short, 2 runs" in ordered
    assert Queue(tmp_path / "queue").orders() == [Order("short-runs", "short", 2, methods=("mle",))]
    assert "is paused" in say("queue", "pause")
    waiting = say("queue", "status")
    assert "Queue, paused" in waiting
    assert "Core hours left in all: unknown." in waiting
    say("queue", "resume")
    worked = say("queue", "work", "--jobs", "2")
    assert worked.count("finished toy-m1_mle_seed") == 2
    assert "Nothing is left to run." in worked
    assert "Core hours left in all: 0.00." in say("queue", "status")
    table = say("table", "short-runs", "--budget", "short", "--no-run", "--folder", "elsewhere")
    assert "±" in table, "the two seeds of the one method"
    Queue(tmp_path / "queue").record_failure("some-run", "ValueError: no")
    assert "failed some-run: ValueError: no" in say("queue", "status")
    with pytest.raises(SystemExit, match="1 runs failed"):
        say("queue", "work")
    assert "1 failed runs will be tried again" in say("queue", "retry")
