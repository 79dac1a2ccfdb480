"""Runs of several processes: killed at random moments, or launched twice at once, they end as an undisturbed one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bayesattn.experiments.runs import RunFolder, configure, run
from torture.attention_cases import Tally, expect, tally_of

EPOCHS, PROCESSES = 12, 2
CONFIG = configure(
    "toy-m1",
    "bam-wf",
    training={"epochs": EPOCHS, "batch_size": 47, "samples": 2},
    task_options={"hidden": 8, "feedforward": 8},
)
FILES = {"config.json", "metrics.jsonl", "model.safetensors", "result.json", ".lock"}
PATIENCE = 120.0
"""Seconds after which a launch hangs that needs a few."""


@dataclass
class Launch:
    """The processes of one run, forked from this one as `accelerate launch` would start them."""

    processes: list[int]
    log: Path

    def ended(self, within: float = PATIENCE) -> list[int]:
        """The exit codes; a process that goes on for too long is killed, and its code is that of the kill."""
        end, codes = time.monotonic() + within, {}
        while len(codes) < len(self.processes):
            for process in self.processes:
                if process not in codes:
                    found, status = os.waitpid(process, os.WNOHANG)
                    if found:
                        codes[process] = os.waitstatus_to_exitcode(status)
                    elif time.monotonic() > end:
                        os.kill(process, signal.SIGKILL)
            time.sleep(0.005)
        return [codes[process] for process in self.processes]

    def kill(self, places: list[int]) -> None:
        for place in places:
            os.kill(self.processes[place], signal.SIGKILL)


def launch(folder: Path) -> Launch:
    """Start the run in `PROCESSES` processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder.parent / f"{folder.name}-{time.monotonic_ns()}.log"
    processes = []
    for rank in range(PROCESSES):
        process = os.fork()
        if process == 0:
            _be_a_process(folder, log, rank, port)
        processes.append(process)
    return Launch(processes, log)


def _be_a_process(folder: Path, log: Path, rank: int, port: int) -> None:
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        size = str(PROCESSES)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
        run(CONFIG, folder, checkpoint_seconds=0.0)
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run leaves, but its times."""
    of = RunFolder.of(folder, CONFIG)
    result = of.result()
    expect(result is not None, "there is no result")
    assert result is not None
    names = {each.name for each in of.path.iterdir()}
    expect(names == FILES, f"the folder has {sorted(names)}")
    history = [{key: value for key, value in line.items() if "seconds" not in key} for line in of.history()]
    weights = {name: tensor.tolist() for name, tensor in of.read_model().items()}
    return {"metrics": result["metrics"], "processes": result["processes"], "history": history, "weights": weights}


@cache
def undisturbed() -> tuple[str, float]:
    """The outcome of a launch that nobody disturbs, and its seconds."""
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        one = launch(Path(name) / "runs")
        expect(one.ended() == [0] * PROCESSES, one.log.read_text()[-2000:])
        seconds = time.monotonic() - began
        return json.dumps(outcome(Path(name) / "runs")), seconds


@dataclass(frozen=True)
class LaunchCase:
    """A launch of a run, decided by its number: when which of its processes are killed, and whether another one waits for it."""

    number: int
    moment: float
    killed: tuple[int, ...]
    twice: bool

    @classmethod
    def of(cls, number: int) -> LaunchCase:
        pick = random.Random(number)
        killed = pick.choice(((0,), (1,), (0, 1)))
        return cls(number, pick.random(), killed, pick.random() < 0.3)


def check(case: LaunchCase) -> None:
    """Kill the launch in its course; another one, there already or started now, ends as if nothing had been."""
    expected, seconds = undisturbed()
    home = Path(tempfile.mkdtemp())
    launches: list[Launch] = []
    try:
        launches.append(launch(home / "runs"))
        if case.twice:
            launches.append(launch(home / "runs"))
        time.sleep(case.moment * seconds)
        launches[0].kill(list(case.killed))
        first = launches[0].ended()
        expect(
            bool(case.killed) or first == [0] * PROCESSES,
            f"it ended with {first}: {launches[0].log.read_text()[-2000:]}",
        )
        if not case.twice:
            launches.append(launch(home / "runs"))
        codes = launches[1].ended()
        expect(codes == [0] * PROCESSES, f"it ended with {codes}: {launches[1].log.read_text()[-2000:]}")
        expect(json.dumps(outcome(home / "runs")) == expected, "the outcome is another one")
    finally:
        for each in launches:
            for process in each.processes:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
        shutil.rmtree(home)


def torture(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """Check all these cases."""
    sys.stdout.flush()
    return tally_of(cases, LaunchCase.of, check, tick)
