"""Attention noise after training, its scale fitted on validation examples (`ba.fit_noise`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from bayesattn.convert.noise import fit_noise
from bayesattn.experiments.methods.base import Method
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.tasks.base import Examples, Task
from bayesattn.posteriors.base import Posterior
from bayesattn.support import checks


@dataclass(frozen=True)
class NoiseOptions:
    """Weibull attention weights after training."""

    fit_samples: int = 8
    """Sampled passes over the validation examples at every scale of the noise."""
    fit_examples: int = 1000
    """Validation examples at most that the scale is fitted on."""


class NoiseAfter(Method):
    """Maximum likelihood, then noise where the validation examples gain by it; else the plain model."""

    samples = True
    finishes = True

    def __init__(self, options: NoiseOptions):
        self.fit_samples = checks.whole("fit_samples", options.fit_samples, minimum=2)
        self.fit_examples = checks.whole("fit_examples", options.fit_examples, minimum=2)

    def first_trained_by(self, task: Task) -> tuple[str, ...]:
        return ("mle",)

    def finish(self, model: nn.Module, task: Task, train: Examples) -> None:
        inputs, labels = task.load().validation
        device = next(model.parameters()).device
        held_out = (inputs[: self.fit_examples].to(device), labels[: self.fit_examples].to(device))
        fit_noise(model, held_out, samples=self.fit_samples, likelihood=task.likelihood, max_rows=256)

    def predict(self, models: Sequence[nn.Module], task: Task, inputs: Any, samples: int) -> Any:
        random = any(isinstance(module, Posterior) for module in models[0].modules())
        return super().predict(models, task, inputs, samples) if random else self.point_estimate(models, task, inputs)


METHODS.add(
    "noise-after",
    "Weibull attention weights after training, their noise fitted on validation examples",
    NoiseOptions(),
    NoiseAfter,
)
