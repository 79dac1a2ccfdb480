"""Many runs: in local processes, or on a Ray cluster. A failed run is reported and does not stop the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from bayesattn.experiments.runs.config import RunConfig
from bayesattn.experiments.runs.folder import RunFolder
from bayesattn.support import checks


@dataclass(frozen=True)
class Outcome:
    """How one run of a sweep ended: with a result, or with what went wrong."""

    config: RunConfig
    result: dict[str, Any] | None
    error: str | None = None


def sweep(
    configs: Sequence[RunConfig],
    parent: Path,
    *,
    jobs: int = 1,
    ray_address: str | None = None,
    on_outcome: Callable[[Outcome], object] = lambda outcome: None,
) -> list[Outcome]:
    """The outcome of every config, in order; what has finished before is read and not computed again.

    Each run has a process and one thread of its own, `jobs` at a time; with `ray_address` each is a task of one processor on
    that cluster ("auto": the one that this machine belongs to, "local": one that is started here).
    """
    checks.whole("jobs", jobs)
    outcomes: dict[str, Outcome] = {}
    missing = []
    for config in configs:
        result = RunFolder.of(parent, config).result()
        if result is None:
            missing.append(config)
        else:
            outcomes[config.name] = Outcome(config, result)
    for outcome in outcomes.values():
        on_outcome(outcome)
    if ray_address is None:
        fresh = _in_processes(missing, parent, jobs)
    else:
        from bayesattn.experiments.runs.ray_cluster import on_ray

        fresh = on_ray(missing, parent, ray_address)
    for outcome in fresh:
        outcomes[outcome.config.name] = outcome
        on_outcome(outcome)
    return [outcomes[config.name] for config in configs]


def run_alone(values: dict[str, Any], parent: str) -> dict[str, Any]:
    """The run of a config given as plain values, with one thread: what a worker does."""
    import torch

    from bayesattn.experiments.plugins import load_plugins
    from bayesattn.experiments.runs.single import run

    torch.set_num_threads(1)
    load_plugins()
    return run(RunConfig.from_json(values), Path(parent))


def _in_processes(configs: list[RunConfig], parent: Path, jobs: int) -> Iterator[Outcome]:
    """One process for each run. They are forked from a server that has imported everything and started no thread."""
    context = multiprocessing.get_context("forkserver")
    # torch's optimisers import torch._dynamo when first used, which takes longer than a short run
    context.set_forkserver_preload(["torch._dynamo", "bayesattn.experiments.runs.single"])
    waiting = list(reversed(configs))
    running: dict[Any, tuple[RunConfig, ForkServerProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                config = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                arguments = (config.to_json(), str(parent), dict(os.environ), sender)
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                sender.close()  # so that the end of the process is seen as the end of the pipe
                running[receiver] = (config, process)
            for receiver in wait(list(running)):
                config, process = running.pop(receiver)
                yield _received(config, receiver, process)
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()


def _received(config: RunConfig, receiver: Any, process: ForkServerProcess) -> Outcome:
    try:
        result, error = receiver.recv()
    except (EOFError, OSError):  # OSError: it ended in the middle of a word
        process.join()
        result, error = None, f"its process ended without a word (exit code {process.exitcode})"
    receiver.close()
    process.join()
    return Outcome(config, result, error)


def _work(values: dict[str, Any], parent: str, environment: dict[str, str], sender: Connection) -> None:
    os.environ.update(environment)  # the server may be older than what was set since, such as BAYESATTN_DATA
    try:
        answer = (run_alone(values, parent), None)
    except KeyboardInterrupt:
        return  # the terminal's Ctrl-C reaches every process; the parent says it
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        answer = (None, f"{type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno})")
    with contextlib.suppress(BrokenPipeError):  # the parent was killed; a result is on disk all the same
        sender.send(answer)
