"""`make torture`: everything that can go wrong, many times; what was tried and what failed goes to results/reliability.json.

python tests/torture                                 all parts; what was stopped goes on where it was
python tests/torture --parts attention files         some of them
python tests/torture --share 0.01                    a hundredth of every part
python tests/torture --collect FILE                  take the parts that were run elsewhere, with --results FILE
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))  # as pytest has it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")

import torch  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn  # noqa: E402

from bayesattn.support.files import write_atomically  # noqa: E402
from torture.reliability_page import RESULTS, update_page  # noqa: E402


@dataclass(frozen=True)
class Part:
    """Numbered cases of one kind."""

    what: str
    cases: int
    chunk: int
    """So many are tried before the results are written: where a stopped run goes on."""
    module: str
    function: str
    """Takes a range of numbers and a function to call after each; gives a `Tally`."""

    def torture(self, numbers: range, tick: Callable[[], object]) -> Any:
        return getattr(importlib.import_module(self.module), self.function)(numbers, tick)


PARTS = {
    "attention": Part(
        "calls of attention: posteriors × priors × shapes × masks × dtypes × extremes × modes × backends, through attend, the module "
        "and the converted torch module",
        *(100_000, 500, "torture.attention_cases", "torture"),
    ),
    "derivatives": Part(
        "other derivatives than those of one backward pass: forward mode, torch.func, vmap, second derivatives, checkpointing",
        *(2_000, 100, "torture.derivative_cases", "torture"),
    ),
    "models": Part(
        "layers and whole models: 18 Hugging Face architectures, timm, PyTorch Geometric, torch.nn, graph and additive attention",
        *(10_000, 100, "torture.model_cases", "torture"),
    ),
    "threads": Part(
        "eight threads that predict at once with one model, of eight kinds",
        200,
        20,
        "torture.concurrency_cases",
        "torture_threads",
    ),
    "tasks": Part(
        "eight tasks of asyncio that record and sample at once, waiting inside their blocks",
        *(200, 20, "torture.concurrency_cases", "torture_tasks"),
    ),
    "files": Part("damaged files of 19 formats", 32_000, 100, "torture.file_cases", "torture_files"),
    "cache": Part("damages of the cache of compiled kernels", 50, 10, "torture.cache_cases", "torture"),
    "kills": Part("SIGKILLs of a sweep at random moments", 50, 5, "torture.sweep_cases", "torture_kills"),
    "launches": Part(
        "SIGKILLs of runs of two processes at random moments, three in ten with a second launch that waits",
        *(50, 5, "torture.launch_cases", "torture"),
    ),
    "pairs": Part("two sweeps at once on one folder", 10, 1, "torture.sweep_cases", "torture_pairs"),
    "disk": Part("sweeps on a disk that becomes full", 10, 1, "torture.sweep_cases", "torture_disk"),
    "steps": Part(
        "training steps of a converted model under record()", 10_000, 10_000, "torture.long_haul", "torture_steps"
    ),
    "predictions": Part("calls of predict", 1_000, 1_000, "torture.long_haul", "torture_predictions"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of each part, at least one")
    parser.add_argument("--first", type=int, default=0, help="number of the first case: another number, other cases")
    parser.add_argument("--anew", action="store_true", help="do not go on with what was begun or done")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--collect", type=Path, metavar="FILE", help="put the parts in FILE in place of the same ones here"
    )
    arguments = parser.parse_args()
    if arguments.collect is not None:
        _keep(arguments.results, _read(arguments.collect))
        return
    torch.set_num_threads(1)
    failed = 0
    try:
        for name in arguments.parts:
            failed += _run(name, arguments)
    except KeyboardInterrupt:
        sys.exit("\nStopped. The same command goes on where it was.")
    sys.exit(1 if failed else 0)


def _run(name: str, arguments: argparse.Namespace) -> int:
    """Run a part, or what is left of it; the number of cases that went wrong."""
    part = PARTS[name]
    cases = max(1, round(arguments.share * part.cases))
    chunk = min(part.chunk, cases)
    cases -= cases % chunk
    entry = {
        "what": part.what,
        "command": f"python tests/torture --parts {name} --share {arguments.share:g} --first {arguments.first}",
        "cases": cases,
        "first": arguments.first,
        "commit": commit(),
        "machine": f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}, "
        f"torch {torch.__version__}, 1 thread",
        "tried": 0,
        "wrong": {},
        "measured": {},
        "seconds": 0.0,
    }
    before = _read(arguments.results).get(name, {})
    if not arguments.anew and all(before.get(key) == entry[key] for key in ("cases", "first", "commit", "machine")):
        entry = before
    with _progress() as progress:
        bar = progress.add_task(name, total=cases, completed=entry["tried"])
        tick = partial(_tick, progress, bar, [0.0])
        while entry["tried"] < cases and len(entry["wrong"]) < 20:
            began = time.monotonic()
            start = arguments.first + entry["tried"]
            tally = part.torture(range(start, start + chunk), tick)
            entry["tried"] += chunk
            entry["wrong"] |= {str(number): words for number, words in tally.wrong.items()}
            entry["measured"] |= tally.measured
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - began, 1)
            progress.update(bar, completed=entry["tried"])
            _keep(arguments.results, {name: entry})
    for words in entry["wrong"].values():
        print(words)
    print(f"{name}: {entry['tried']} tried, {len(entry['wrong'])} wrong; kept in {arguments.results}.")
    return len(entry["wrong"])


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _keep(path: Path, parts: dict[str, Any]) -> None:
    """Write these parts in place of those that were there, in the order in which they are run, and to the page."""
    kept = _read(path) | parts
    write_atomically(path, json.dumps({name: kept[name] for name in PARTS if name in kept}, indent=2) + "\n")
    if path == RESULTS:
        update_page()


def _tick(progress: Progress, bar: TaskID, shown: list[float]) -> None:
    progress.update(bar, advance=1)
    if time.monotonic() - shown[0] > 0.5:
        shown[0] = time.monotonic()
        progress.refresh()


def _progress() -> Progress:
    # refreshed by hand: a thread that does it would be a thread too many when parts fork
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, auto_refresh=False)


def commit() -> str:
    """The last commit that changed code or tests, marked if files differ from it. Results and documents may change meanwhile."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words, "--", "src", "tests"], cwd=ROOT, capture_output=True, text=True).stdout

    changed = git("status", "--porcelain").strip()
    return (git("log", "-1", "--format=%h", "--abbrev=12").strip() or "unknown") + ("-dirty" if changed else "")


if __name__ == "__main__":
    main()
