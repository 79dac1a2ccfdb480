"""Runs in processes of their own, each with one thread; one that fails or dies is an outcome as any other."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any

from bayesattn.experiments.runs.checkpoints import Interrupted, never
from bayesattn.experiments.runs.config import RunConfig

PRELOADED = ["torch._dynamo", "bayesattn.experiments.runs.single"]
"""What the server has imported. torch's optimisers import torch._dynamo when first used, which takes longer than a short run."""


@dataclass(frozen=True)
class RunOutcome:
    """How one run ended: with a result, with what went wrong, or, where it has neither, because it was asked to stop."""

    config: RunConfig
    result: dict[str, Any] | None
    error: str | None = None
    died: bool = False
    """Whether its process was killed, which may be nobody's fault."""


class Workers:
    """Processes that are forked from a server that has imported everything and started no thread. They end with this block.

    With `stop_file` a run stops at its next safe point once that file is there. One whose parent was killed does so too.
    """

    def __init__(self, parent: Path, stop_file: Path | None = None):
        self.parent = parent
        self.stop_file = stop_file
        self.running: dict[Any, tuple[RunConfig, ForkServerProcess]] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for _, process in self.running.values():
            process.terminate()
        for _, process in self.running.values():
            process.join()

    def start(self, config: RunConfig) -> None:
        """Start one more run."""
        receiver, sender = self._context.Pipe(duplex=False)
        stop_file = None if self.stop_file is None else str(self.stop_file)
        arguments = (config.to_json(), str(self.parent), stop_file, dict(os.environ), sender)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        sender.close()  # so that the end of the process is seen as the end of the pipe
        self.running[receiver] = (config, process)

    def ended(self, timeout: float | None = None) -> list[RunOutcome]:
        """Those that have ended; waits until one has, or so many seconds."""
        return [_received(*self.running.pop(receiver), receiver) for receiver in wait(list(self.running), timeout)]


def run_alone(values: dict[str, Any], parent: str, stop_if: Callable[[], bool] = never) -> dict[str, Any]:
    """The run of a config given as plain values, with one thread: what a worker does."""
    import torch

    from bayesattn.experiments.plugins import load_plugins
    from bayesattn.experiments.runs.single import run

    torch.set_num_threads(1)
    load_plugins()
    return run(RunConfig.from_json(values), Path(parent), stop_if=stop_if)


def _received(config: RunConfig, process: ForkServerProcess, receiver: Any) -> RunOutcome:
    died = False
    try:
        result, error = receiver.recv()
    except (EOFError, OSError):  # OSError: it ended in the middle of a word
        process.join()
        result, error, died = None, f"its process ended without a word (exit code {process.exitcode})", True
    receiver.close()
    process.join()
    return RunOutcome(config, result, error, died)


def _work(
    values: dict[str, Any], parent: str, stop_file: str | None, environment: dict[str, str], sender: Connection
) -> None:
    os.environ.update(environment)  # the server may be older than what was set since, such as BAYESATTN_DATA
    starter = multiprocessing.parent_process()
    assert starter is not None

    def stop_if() -> bool:
        return not starter.is_alive() or (stop_file is not None and os.path.exists(stop_file))

    try:
        answer = (run_alone(values, parent, stop_if), None)
    except KeyboardInterrupt:
        return  # the terminal's Ctrl-C reaches every process; the parent says it
    except Interrupted:
        answer = (None, None)
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        answer = (None, f"{type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno})")
    with contextlib.suppress(BrokenPipeError):  # the parent was killed; a result is on disk all the same
        sender.send(answer)
