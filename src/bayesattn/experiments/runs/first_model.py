"""A model that another run has trained already: an ensemble's first is the one of maximum likelihood, and so is MC dropout's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs.config import RunConfig
from bayesattn.experiments.runs.folder import RunFolder


@dataclass(frozen=True)
class Trained:
    """The model of a finished run, and what its training cost."""

    run: str
    commit: str
    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    seconds: float
    seconds_per_step: float


def trained_first_model(config: RunConfig, parent: Path) -> Trained | None:
    """The first model of the run `config`, if a finished run below `parent` trained it, seed for seed and option for option."""
    for method in config.make_method().first_trained_by(config.make_task()):
        folder = RunFolder.of(parent, replace(config, method=method, method_options=METHODS.entry(method).options))
        result = folder.result()
        if result is None or "seconds_per_step" not in result:  # results of early versions have none
            continue
        weights = {key.removeprefix("0."): value for key, value in folder.read_model().items()}
        of_run = (folder.path.name, result["commit"])
        return Trained(*of_run, weights, folder.history(), result["train_seconds"], result["seconds_per_step"])
    return None
