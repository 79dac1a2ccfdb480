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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from bayesattn.files import write_atomically
from bayesattn.runs.config import RunConfig

_log = logging.getLogger(__name__)


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
        return json.loads(path.read_text()) if path.exists() else None

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
        return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None

    def write_history(self, lines: list[dict[str, Any]]) -> None:
        """Replace the metrics by these lines."""
        write_atomically(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def append_history(self, line: dict[str, Any]) -> None:
        """Add one line to the metrics."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """The metrics of every epoch so far."""
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def write_result(self, result: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Finish: the model, then the result; the checkpoint is no longer needed."""
        write_atomically(self.path / "model.safetensors", save(tensors))
        write_atomically(self.path / "result.json", _readable(result))
        (self.path / "checkpoint.pt").unlink(missing_ok=True)

    def read_model(self) -> dict[str, Tensor]:
        """The tensors of the fitted model."""
        return load_file(self.path / "model.safetensors")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no other process works on this run. A process that dies gives its lock back."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.warning("Waiting for another process that works on %s.", self.path)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _readable(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"
