"""The folder of one run: its files, each there whole or not at all.

config.json         what is run
metrics.jsonl       one line for each epoch
checkpoint.pt       where it stands; removed when it has finished
model.safetensors   the fitted model
result.json         written last: a run with a result is finished
"""

from __future__ import annotations

import fcntl
import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from bayesattn.experiments.runs.config import RunConfig
from bayesattn.support import json_text
from bayesattn.support.files import append, remove_unfinished, write_atomically

_log = logging.getLogger(__name__)

_STATE = {"epoch", "finished", "history", "seconds"}
"""What every checkpoint has."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path):
        self.path = Path(path)

    @classmethod
    def of(cls, parent: Path, config: RunConfig) -> RunFolder:
        """The folder of the run with this config, below `parent`."""
        return cls(Path(parent) / config.name)

    def result(self) -> dict[str, Any] | None:
        """The result, if the run has finished."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        result = _record(json_text.read(path), path)
        metrics = result.get("metrics")
        if not isinstance(metrics, dict) or not all(isinstance(each, int | float) for each in metrics.values()):
            raise ValueError(f"{path} holds no metrics of a run: remove it, and the run is computed again.")
        return result

    def config(self) -> dict[str, Any] | None:
        """What is run, as plain values, if that was written."""
        path = self.path / "config.json"
        return _record(json_text.read(path), path) if path.exists() else None

    def write_config(self, config: RunConfig) -> None:
        """Say what is run, before it runs."""
        write_atomically(self.path / "config.json", _readable(config.to_json()))

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        """Keep `state`: tensors, numbers, strings, and lists and dicts of them."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(self.path / "checkpoint.pt", buffer.getvalue())

    def read_checkpoint(self) -> dict[str, Any] | None:
        """What `write_checkpoint` kept last."""
        path = self.path / "checkpoint.pt"
        if not path.exists():
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            missing = _STATE - set(state)
            if missing:
                raise ValueError(f"it has no {min(missing)!r}")
        except Exception as problem:  # a damaged archive, or a pickle that wants to run code, may raise anything
            words = str(problem).strip().partition("\n")[0][:300] or type(problem).__name__
            raise ValueError(f"{path} is refused: {words}. Remove it, and the run starts from its beginning.") from None
        return state

    def write_history(self, lines: list[dict[str, Any]]) -> None:
        """Replace the metrics by these lines."""
        write_atomically(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def append_history(self, line: dict[str, Any]) -> None:
        """Add one line to the metrics."""
        append(self.path / "metrics.jsonl", json.dumps(line))

    def history(self) -> list[dict[str, Any]]:
        """The metrics of every epoch so far."""
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [_record(json_text.parse(line, f"{path}, line {number}"), path) for number, line in enumerate(lines, 1)]

    def write_result(self, result: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Finish: the model, then the result; the checkpoint is no longer needed."""
        write_atomically(self.path / "model.safetensors", save(tensors))
        write_atomically(self.path / "result.json", _readable(result))
        self.remove_checkpoint()

    def finished(self) -> dict[str, Any] | None:
        """The result, if there is one. A kill between it and the removal of the checkpoint left that behind: it is removed now."""
        result = self.result()
        if result is not None:
            self.remove_checkpoint()
        return result

    def remove_checkpoint(self) -> None:
        """What a finished run has no use for."""
        (self.path / "checkpoint.pt").unlink(missing_ok=True)

    def read_model(self) -> dict[str, Tensor]:
        """The tensors of the fitted model."""
        path = self.path / "model.safetensors"
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError, KeyError) as problem:
            raise ValueError(f"{path} holds no model ({problem}). Remove the folder and run again.") from None

    @contextmanager
    def locked(self, asks: bool = True, agreed: Callable[[bool], bool] = bool) -> Iterator[None]:
        """Wait until no other launch works on this run. A process that dies gives its lock back.

        Of the processes of one launch the first one asks for the lock; `agreed` gives all of them its answer, again and again, since
        processes that wait for each other in silence are given up after some minutes.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            told = False
            while not agreed(asks and _take(file)):
                if asks and not told:
                    _log.warning("Waiting for another process that works on %s.", self.path)
                    told = True
                time.sleep(0.2)
            if asks:
                remove_unfinished(self.path)
            yield

    def is_worked_on(self) -> bool:
        """Whether a process works on this run now."""
        try:
            with (self.path / ".lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False


def _take(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _record(values: Any, path: Path) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold JSON objects, not {str(values)[:60]!r}.")
    return values


def _readable(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"
