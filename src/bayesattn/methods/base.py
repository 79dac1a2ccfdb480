"""The contract of a method: how to make a task's model Bayesian, how to fit it, how to predict with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.annotations import Float
from bayesattn.latents import Latents
from bayesattn.objective import Elbo, elbo
from bayesattn.prediction import CategoricalPrediction, GaussianPrediction, Prediction, predict
from bayesattn.tasks.base import Examples, Task


class Method:
    """One deterministic model, trained by maximum likelihood; others override what differs.

    Its constructor takes its options, a frozen dataclass. The calls, in order: `build` (once for each of `members`), `start_epoch`,
    `objective` (each step), `finish` (each member, after training), `predict`.
    """

    members: int = 1
    """How many models are trained, each from its own start."""
    dropout: float = 0.0
    """Dropout of the base model."""
    samples: bool = False
    """Whether predictions are sampled: `Training.samples` of each member, else one."""
    samples_dropout: bool = False
    """Whether dropout stays on in predictions."""

    def build(self, task: Task) -> nn.Module:
        """A fresh model, ready to train."""
        return task.build(self.dropout)

    def start_epoch(self, model: nn.Module, progress: float) -> None:
        """What changes from epoch to epoch; `progress` is the share of training that is done."""

    def objective(self, nll: Float[Tensor, " batch"], latents: Latents, progress: float, dataset_size: int) -> Elbo:
        """The loss of a batch; `progress` is the share of training that is done."""
        return elbo(nll, None)

    def finish(self, model: nn.Module, task: Task, train: Examples) -> None:
        """What is left to do to a trained model (a Laplace approximation, say)."""

    def predict(self, models: Sequence[nn.Module], task: Task, inputs: Any, samples: int) -> Any:
        """What all members together predict: a `Prediction`, or of one member whatever else the task predicts."""
        predictions = [
            task.predict(model, inputs, samples if self.samples else 1, self.samples_dropout) for model in models
        ]
        return predictions[0] if len(predictions) == 1 else _pooled(predictions)

    def point_estimate(self, models: Sequence[nn.Module], task: Task, inputs: Any) -> Prediction:
        """What all members together predict without any noise: one sample of each."""
        return _pooled([predict(model, inputs, likelihood=task.likelihood, point_estimate=True) for model in models])


def _pooled(predictions: list[Prediction]) -> Prediction:
    """One prediction from the samples of several."""
    samples = torch.cat([prediction.samples for prediction in predictions])
    gaussians = [prediction for prediction in predictions if isinstance(prediction, GaussianPrediction)]
    if gaussians:
        return GaussianPrediction(samples, torch.cat([prediction.scales for prediction in gaussians]))
    return CategoricalPrediction(samples) if isinstance(predictions[0], CategoricalPrediction) else Prediction(samples)
