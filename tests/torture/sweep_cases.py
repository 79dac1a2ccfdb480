"""Sweeps that are killed, run into a full disk, or are started twice at once: the table is that of an undisturbed one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bayesattn.experiments.runs import RunFolder, single
from bayesattn.experiments.tables import results as kept_results
from bayesattn.experiments.tables.summary import summarise
from torture.attention_cases import Tally, Wrong, expect
from torture.small_table import TABLE, make

TIMES = ("train_seconds", "evaluate_seconds", "seconds_per_step", "finished", "commit", "first_model_taken_over")
"""What may differ: times, and whether an ensemble trained its first model itself, which depends on what ended first. The model may not."""
FILES = {"config.json", "metrics.jsonl", "model.safetensors", "result.json", ".lock"}
PATIENCE = 120.0
"""Seconds after which an undisturbed sweep of a second or two hangs."""

Tick = Callable[[], object]


@dataclass
class Sweep:
    """A sweep in a process of its own, with its workers in one group of processes."""

    process: int
    log: Path

    def ended(self, within: float) -> int | None:
        """Its exit code, or None if it goes on for longer than so many seconds."""
        end = time.monotonic() + within
        while True:
            found, status = os.waitpid(self.process, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= end:
                return None
            time.sleep(0.005)

    def kill(self, workers_too: bool) -> None:
        """SIGKILL; its workers, if they are spared, go on as orphans."""
        if workers_too:
            os.killpg(self.process, signal.SIGKILL)
        else:
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def words(self) -> str:
        """What it printed."""
        return self.log.read_text(errors="replace")


def start(folder: Path, *, fresh: bool = False, jobs: int = 1, largest_file: int | None = None) -> Sweep:
    """Start the sweep: in a new interpreter, or forked from this one, which has imported everything already.

    The forked one forks its workers as well, where the real one has a server that does so.
    """
    log = folder.parent / f"{folder.name}-{time.monotonic_ns()}.log"
    if fresh:
        with log.open("w") as output:
            command = [sys.executable, str(Path(__file__).parent / "small_table.py"), str(folder), str(jobs)]
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True).pid
        return Sweep(process, log)
    process = os.fork()
    if process == 0:
        _be_a_sweep(folder, log, jobs, largest_file)
    while os.getpgid(process) != process:  # it can be killed with its workers from now on
        time.sleep(0.001)
    return Sweep(process, log)


def _be_a_sweep(folder: Path, log: Path, jobs: int, largest_file: int | None) -> None:
    code = 1
    try:
        os.setsid()
        with log.open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        forking = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda method=None: forking  # pyright: ignore[reportAttributeAccessIssue]
        gc.freeze()  # what was imported is not looked through again
        _count_computed(log.parent / f"{folder.name}-computed")
        make(folder, jobs)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = 0 if end.code in (0, None) else 1
    except BaseException as problem:
        print(f"Traceback: {type(problem).__name__}: {problem}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _count_computed(path: Path) -> None:
    """Write down every run that comes to its evaluation."""
    evaluated = single._evaluated

    def counted(config: Any, *rest: Any) -> Any:
        with path.open("a") as file:
            file.write(config.name + "\n")
        return evaluated(config, *rest)

    single._evaluated = counted


@contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder, which is removed."""
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        yield Path(name)


@cache
def undisturbed() -> tuple[dict[str, Any], float]:
    """What a sweep leaves behind that nobody disturbs, and how many seconds it takes."""
    with workplace() as place:
        began = time.monotonic()
        sweep = start(place / "sweep")
        code = sweep.ended(PATIENCE)
        seconds = time.monotonic() - began
        expect(code == 0, f"the undisturbed sweep ended with {code}: {sweep.words()[-500:]}")
        return left_behind(place / "sweep"), seconds


def left_behind(folder: Path) -> dict[str, Any]:
    """Figures, histories and models of a finished sweep, without times."""
    kept = kept_results.read(folder / "results" / "torture.json")
    names = [config.name for config in TABLE.configs()]
    expect(len(kept.runs) == len(names) == len(kept.by_name), f"{len(kept.runs)} runs in place of {len(names)}")
    found = {path.name for path in (folder / "runs").iterdir()}
    expect(found == set(names), f"other folders than those of the runs: {found ^ set(names)}")
    for name in names:
        files = {path.name for path in (folder / "runs" / name).iterdir()}
        expect(files == FILES, f"{name} has other files than a finished run: {files ^ FILES}")
    return {
        "figures": [_without_times(run) for run in kept.runs],
        "rows": [(row.method, row.seeds, row.cells) for part in summarise(TABLE, kept) for row in part.rows],
        "runs": {name: _of_run(RunFolder(folder / "runs" / name)) for name in names},
    }


def _of_run(folder: RunFolder) -> dict[str, Any]:
    result = folder.result()
    assert result is not None
    history = [{key: value for key, value in line.items() if key != "seconds"} for line in folder.history()]
    model = {key: value.tolist() for key, value in folder.read_model().items()}
    return {"result": _without_times(result), "history": history, "model": model}


def _without_times(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in TIMES}


def _expect_same(name: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same result, history and model; what differs is named."""
    results = found["result"], expected["result"]
    keys = {key for key in results[0].keys() | results[1].keys() if results[0].get(key) != results[1].get(key)}
    parts = {part for part in ("history", "model") if found[part] != expected[part]}
    expect(not keys | parts, f"{name} has another result: {', '.join(sorted(keys | parts))}")


def expect_intact(folder: Path) -> None:
    """Whatever was finished before the end is there, whole and right."""
    expected, _ = undisturbed()
    for path in (folder / "runs").glob("*"):
        if (path / "result.json").exists():
            _expect_same(path.name, _of_run(RunFolder(path)), expected["runs"][path.name])

    if (folder / "results" / "torture.json").exists():
        kept_results.read(folder / "results" / "torture.json")


def expect_undisturbed(folder: Path) -> None:
    """The finished sweep is the undisturbed one."""
    found, (expected, _) = left_behind(folder), undisturbed()
    for part in expected:
        expect(found[part] == expected[part], f"other {part} than undisturbed")


def finish(folder: Path) -> None:
    """Let the sweep come to its end, and look at what it left."""
    sweep = start(folder)
    code = sweep.ended(PATIENCE)
    if code is None:
        sweep.kill(workers_too=True)
    expect(code == 0, f"ended with {code}: {sweep.words()[-500:]}")
    expect_undisturbed(folder)


def torture_kills(cases: range, tick: Tick = lambda: None) -> Tally:
    """Kill a sweep at as many random moments, start it again each time; one that has come to its end is followed by a new one."""
    tally = Tally()
    _, seconds = undisturbed()
    with workplace() as place:
        folder, sweeps = place / "sweep-0", 1
        for number in cases:
            pick = random.Random(f"kill {number}")
            fresh = number % 10 == 9
            try:
                while True:
                    sweep = start(folder, fresh=fresh, jobs=pick.choice((1, 2)))
                    moment = pick.uniform(
                        0, seconds + (6.0 if fresh else 0.0)
                    )  # an interpreter of its own starts slowly
                    if sweep.ended(moment) is None:
                        break
                    finish(folder)  # it was faster than the kill
                    folder, sweeps = place / f"sweep-{sweeps}", sweeps + 1
                sweep.kill(workers_too=pick.random() < 0.7)
                tally.tried += 1
                expect_intact(folder)
            except Exception as problem:
                tally.wrong[number] = f"kill {number}: {type(problem).__name__}: {problem}"
                folder, sweeps = place / f"sweep-{sweeps}", sweeps + 1
            tick()
        try:
            finish(folder)
        except Wrong as problem:
            tally.wrong[cases[-1]] = f"after kill {cases[-1]}: {problem}"
    return tally


def torture_pairs(cases: range, tick: Tick = lambda: None) -> Tally:
    """Two sweeps on one folder at once."""
    tally = Tally()
    undisturbed()
    for number in cases:
        pick = random.Random(f"pair {number}")
        with workplace() as place:
            folder = place / "sweep"
            first = start(folder, jobs=pick.choice((1, 2)))
            time.sleep(pick.uniform(0, 0.5))
            sweeps = (first, start(folder, jobs=pick.choice((1, 2))))
            tally.tried += 1
            try:
                for sweep in sweeps:
                    code = sweep.ended(PATIENCE)
                    if code is None:
                        sweep.kill(workers_too=True)
                    expect(code == 0, f"one ended with {code}: {sweep.words()[-500:]}")
                expect_undisturbed(folder)
                computed = sorted((place / "sweep-computed").read_text().split())
                expected = sorted(config.name for config in TABLE.configs())
                expect(computed == expected, f"computed {computed}, not each run once")
            except Exception as problem:
                tally.wrong[number] = f"pair {number}: {type(problem).__name__}: {problem}"
        tick()
    return tally


def torture_disk(cases: range, tick: Tick = lambda: None) -> Tally:
    """A disk that is full at a random moment: words about it, results intact, and the sweep goes on when there is room again."""
    tally = Tally()
    undisturbed()
    for number in cases:
        pick = random.Random(f"disk {number}")
        with workplace() as place:
            tally.tried += 1
            try:
                if can_mount():
                    _on_small_disk(place, pick)
                else:
                    _with_small_files(place, pick)
            except Exception as problem:
                tally.wrong[number] = f"disk {number}: {type(problem).__name__}: {problem}"
        tick()
    return tally


@cache
def can_mount() -> bool:
    """Whether this process may mount a small disk in memory."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    with workplace() as place:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
        if mounted.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return mounted.returncode == 0


def _on_small_disk(place: Path, pick: random.Random) -> None:
    disk = place / "disk"
    disk.mkdir()
    kilobytes = pick.randint(8, 600)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", disk], check=True)
    try:
        sweep = start(disk, jobs=pick.choice((1, 2)))
        _expect_full(sweep, disk, "No space left on device")
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        finish(disk)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def _with_small_files(place: Path, pick: random.Random) -> None:
    folder = place / "sweep"
    _expect_full(start(folder, largest_file=pick.randint(3_000, 15_000)), folder, "File too large")
    finish(folder)


def _expect_full(sweep: Sweep, folder: Path, words: str) -> None:
    code = sweep.ended(PATIENCE)
    said = sweep.words()
    if code is None:
        sweep.kill(workers_too=True)
    expect(code is not None, "it hangs")
    expect("Traceback" not in said, f"a traceback: {said[-800:]}")
    if code == 0:
        expect_undisturbed(folder)  # there was room enough
        return
    expect(words in said and str(folder) in said, f"it does not say what is full: {said[-800:]}")
    expect_intact(folder)
    left = [path for path in folder.rglob(".*-*") if path.is_file()]
    expect(not left, f"half-written files are left: {left}")
