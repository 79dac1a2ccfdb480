"""Models that another run has trained already: an ensemble's first is the one of maximum likelihood, and so is MC dropout's; its first
three are those of the ensemble of three."""

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
    """The models of a finished run, and what their training cost."""

    run: str
    commit: str
    weights: list[dict[str, Tensor]]
    history: list[dict[str, Any]]
    seconds: float
    seconds_per_step: float


def trained_first_models(config: RunConfig, parent: Path) -> Trained | None:
    """The first models of the run `config`, if a finished run below `parent` trained them, seed for seed and option for option."""
    method = config.make_method()
    smaller = [replace(config, method_options=options) for options in method.with_fewer_members()]
    plain = [
        replace(config, method=name, method_options=METHODS.entry(name).options)
        for name in method.first_trained_by(config.make_task())
    ]
    for other in (*smaller, *plain):
        folder = RunFolder.of(parent, other)
        result = folder.result()
        if result is None or "seconds_per_step" not in result:  # results of early versions have none
            continue
        tensors = folder.read_model()
        weights = [
            {key.removeprefix(f"{member}."): value for key, value in tensors.items() if key.startswith(f"{member}.")}
            for member in range(other.make_method().members)
        ]
        of_run = (folder.path.name, result["commit"])
        return Trained(*of_run, weights, folder.history(), result["train_seconds"], result["seconds_per_step"])
    return None
