"""The contract of a method: how to make a task's model Bayesian, how to fit it, how to predict with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.experiments.tasks.base import Examples, Task
from bayesattn.objective import Elbo, elbo
from bayesattn.prediction.predictions import CategoricalPrediction, GaussianPrediction, Prediction
from bayesattn.scopes.recording import Latents
from bayesattn.support.annotations import Float
from bayesattn.weight_space import Ensemble


@dataclass(frozen=True)
class Progress:
    """Where a training stands: minibatches that are done, of so many."""

    step: int
    steps: int

    @property
    def share(self) -> float:
        """The share of the training that is done."""
        return self.step / self.steps


class Method:
    """One deterministic model, trained by maximum likelihood; others override what differs.

    Its constructor takes its options, a frozen dataclass. The calls, in order: `build` (once for each of `members`), `start_epoch`,
    `learning_rate`, `nll` and `objective` (each step), `after_epoch`, `finish` (each member, after training), `predict`.
    """

    members: int = 1
    """How many models are trained, each from its own start."""
    dropout: float = 0.0
    """Dropout of the base model."""
    samples: bool = False
    """Whether predictions are sampled: `Training.samples` of each member, else one."""
    samples_dropout: bool = False
    """Whether dropout stays on in predictions."""
    finishes: bool = False
    """Whether `finish` does something that is not kept with the model, so that a loaded run must do it again."""

    def first_trained_by(self, task: Task) -> tuple[str, ...]:
        """Methods that, with their default options, train the first member exactly as this one does: their runs are not repeated."""
        return ()

    def with_fewer_members(self) -> list[Any]:
        """Options with which this method trains the first of its members and no others, the most of them first."""
        return []

    def build(self, task: Task) -> nn.Module:
        """A fresh model, ready to train."""
        return task.build(self.dropout)

    def start_epoch(self, model: nn.Module, progress: float) -> None:
        """What changes from epoch to epoch; `progress` is the share of training that is done."""

    def nll(self, task: Task, model: nn.Module, batch: Examples) -> Float[Tensor, " batch"]:
        """Negative log-likelihood of each example of a batch in training."""
        return task.nll(model, batch)

    def objective(self, nll: Float[Tensor, " batch"], latents: Latents, progress: Progress, dataset_size: int) -> Elbo:
        """The loss of a batch; `progress` is what was done before it."""
        return elbo(nll, None)

    def learning_rate(self, usual: float, progress: float) -> float:
        """The learning rate as a share of its peak; `usual` is that of the schedule that all methods have."""
        return usual

    def after_epoch(self, model: nn.Module, progress: float) -> None:
        """What is to be done at the end of an epoch; what it leaves must be in the model's state dict."""

    def finish(self, model: nn.Module, task: Task, train: Examples) -> None:
        """What is left to do to a trained model (a Laplace approximation, say)."""

    def predict(self, models: Sequence[nn.Module], task: Task, inputs: Any, samples: int) -> Any:
        """What all members together predict: a `Prediction`, or whatever else the task predicts."""
        network = models[0] if len(models) == 1 else Ensemble(models)
        return task.predict(network, inputs, (samples if self.samples else 1) * len(models), self.samples_dropout)

    def point_estimate(self, models: Sequence[nn.Module], task: Task, inputs: Any) -> Any:
        """What all members together predict without any noise: one sample of each."""
        predictions = [task.predict(model, inputs, 1, point_estimate=True) for model in models]
        return predictions[0] if len(predictions) == 1 else _pooled(predictions)


def _pooled(predictions: list[Prediction]) -> Prediction:
    """One prediction from the samples of several."""
    samples = torch.cat([prediction.samples for prediction in predictions])
    gaussians = [prediction for prediction in predictions if isinstance(prediction, GaussianPrediction)]
    if gaussians:
        return GaussianPrediction(samples, torch.cat([prediction.scales for prediction in gaussians]))
    return CategoricalPrediction(samples) if isinstance(predictions[0], CategoricalPrediction) else Prediction(samples)
