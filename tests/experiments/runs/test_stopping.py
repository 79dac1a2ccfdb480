"""Early stopping: GAT's rule, and that a run keeps the right weights, stopped or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("torch_geometric", reason="needs the graphs extra: pip install 'bayesattn[graphs]'")

from bayesattn.experiments.runs import RunFolder, configure, run
from bayesattn.experiments.runs.stopping import Stopping


def test_weights_are_kept_where_both_are_as_good_as_ever_and_patience_counts_where_neither_is() -> None:
    watch = Stopping(patience=2)
    epochs = [(1.0, 0.5), (0.9, 0.4), (1.1, 0.6), (0.9, 0.6), (1.0, 0.5), (0.8, 0.5), (0.9, 0.5), (0.9, 0.5)]
    found = [(watch.keeps(*figures), watch.waited) for figures in epochs]
    kept, waited = zip(*found, strict=True)
    assert kept == (True, False, False, True, False, False, False, False)
    assert waited == (0, 0, 0, 0, 1, 0, 1, 2)
    assert watch.is_over


class Stop(Exception):
    """In place of a Ctrl-C."""


def test_a_run_ends_with_the_weights_of_the_best_epoch_and_so_does_a_resumed_one(tmp_path: Path) -> None:
    training = {"epochs": 60, "samples": 2, "patience": 4, "learning_rate": 0.05}
    config = configure("blocks", "gat", training=training, task_options={"robustness": False})
    whole = run(config, tmp_path / "whole")
    folder = RunFolder.of(tmp_path / "whole", config)
    history = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert 4 < len(history) < 60
    watch = Stopping(4)
    best = [i for i, line in enumerate(history) if watch.keeps(line["validation_nll"], line["validation_accuracy"])][-1]
    assert watch.is_over
    task = config.make_task()
    model = config.make_method().build(task)
    model.load_state_dict({key.removeprefix("0."): value for key, value in folder.read_model().items()})
    with torch.no_grad():
        figures = task.validation(model.eval(), task.load().validation)
    assert figures["validation_nll"].item() == pytest.approx(history[best]["validation_nll"], rel=1e-5)
    seen: list[Any] = []

    def stop(line: dict[str, Any]) -> None:
        seen.append(line)
        if len(seen) == len(history) - 2:
            raise Stop

    with pytest.raises(Stop):
        run(config, tmp_path / "stopped", checkpoint_seconds=0.0, on_epoch=stop)
    assert run(config, tmp_path / "stopped")["metrics"] == whole["metrics"]
    again = RunFolder.of(tmp_path / "stopped", config)
    assert all(torch.equal(value, again.read_model()[key]) for key, value in folder.read_model().items())
