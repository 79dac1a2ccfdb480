"""Processes that tests start: with the signals that a terminal gives them, and killed when the test is done with them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LAUNCH = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.execv(sys.argv[1], sys.argv[1:])
"""
_SERVERS = ("resource_tracker", "forkserver", "compile_worker", "ray", "loky")
"""Parts of the command lines of processes that serve all tests to come, and end with this one."""


@contextmanager
def started(arguments: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process of Python with these arguments; it is killed if it goes on at the end of the block.

    A shell starts what it runs in the background with SIGINT ignored, and a process passes that on to its children: here they get it back.
    """
    command = [sys.executable, "-c", _LAUNCH, sys.executable, *map(str, arguments)]
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def children() -> dict[int, str]:
    """The running children of this process: their ids and command lines; none where there is no /proc."""
    found = {}
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            of_thread = task.read_text().split()
        except OSError:  # the thread has ended since: its children belong to another one
            return children()
        for child in of_thread:
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                is_dead = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if not is_dead and not any(server in words for server in _SERVERS):
                found[int(child)] = words.strip()
    return found


def left_behind(before: dict[int, str], patience: float = 5.0) -> list[str]:
    """The command lines of children that are not in `before` and do not end within so many seconds. They are killed."""
    end = time.monotonic() + patience
    while (new := {child: words for child, words in children().items() if child not in before}) and (
        time.monotonic() < end
    ):
        time.sleep(0.02)
    for child in new:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return list(new.values())
