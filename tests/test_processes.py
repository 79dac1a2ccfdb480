"""The tests' own care for processes: what is left is seen, what ends is not, and signals reach what is started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from helpers.processes import children, left_behind, started

WAITS = ["-u", "-c", "print('here'); import time; time.sleep(100)"]


def test_a_process_that_is_left_is_seen_and_killed() -> None:
    before = children()
    process = subprocess.Popen([sys.executable, *WAITS], stdout=subprocess.DEVNULL)
    assert ["time.sleep(100)" in words for words in left_behind(before, patience=0.1)] == [True]
    assert process.poll() is not None
    assert left_behind(before, patience=0.0) == []


def test_a_process_gets_sigint_though_we_ignore_it() -> None:
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with started(WAITS, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            process.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    finally:
        signal.signal(signal.SIGINT, ignored)


def test_a_process_is_killed_when_a_test_fails() -> None:
    with pytest.raises(ZeroDivisionError), started(WAITS, stdout=subprocess.DEVNULL) as process:
        1 / 0  # noqa: B018
    assert process.poll() is not None
