"""What is done to the last layer alone: a Laplace approximation, a Gaussian process, variational weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from bayesattn import weight_space
from bayesattn.experiments.methods.base import Method, Progress
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.tasks.base import Examples, Task
from bayesattn.objective import Elbo, elbo
from bayesattn.scopes.recording import Latents
from bayesattn.support import checks
from bayesattn.weight_space.heads import linear_head, put_head


@dataclass(frozen=True)
class LaplaceHeadOptions:
    """Laplace approximation of the last layer, after training."""

    prior_precision: float | None = None
    """Precision of the prior; None: that of highest marginal likelihood."""


class LaplaceHeadMethod(Method):
    """Maximum likelihood, then a Gaussian around the last layer's weights, by one pass over the training data."""

    samples = True

    def __init__(self, options: LaplaceHeadOptions):
        self.options = options

    def first_trained_by(self, task: Task) -> tuple[str, ...]:
        return ("mle",)

    def build(self, task: Task) -> nn.Module:
        model = super().build(task)
        name, layer = linear_head(model, "last")
        put_head(model, name, weight_space.LaplaceHead(layer))
        return model

    def finish(self, model: nn.Module, task: Task, train: Examples) -> None:
        weight_space.laplace_head(model, _pair(train), prior_precision=self.options.prior_precision, max_rows=256)


@dataclass(frozen=True)
class ProcessHeadOptions:
    """A Gaussian process in place of the last layer (SNGP)."""

    random: int = 1024
    """Random features."""


class ProcessHead(Method):
    """Trained with the rest. Predicted without noise, which does not help in distribution; its variance is a score."""

    def __init__(self, options: ProcessHeadOptions):
        self.random = checks.whole("random", options.random)

    def build(self, task: Task) -> nn.Module:
        return weight_space.gp_head(super().build(task), random=self.random)

    def finish(self, model: nn.Module, task: Task, train: Examples) -> None:
        weight_space.fit_gp_head(model, _pair(train), max_rows=256)

    def predict(self, models: Sequence[nn.Module], task: Task, inputs: Any, samples: int) -> Any:
        return self.point_estimate(models, task, inputs)


@dataclass(frozen=True)
class VariationalHeadOptions:
    """A variational Bayesian last layer (VBLL)."""

    prior_scale: float = 1.0
    """Of the prior of every weight."""
    initial_scale: float = 0.03
    """Standard deviation that every weight starts with."""


class VariationalHeadMethod(Method):
    """Trained with the rest by its bound, without sampling."""

    samples = True

    def __init__(self, options: VariationalHeadOptions):
        self.options = options

    def build(self, task: Task) -> nn.Module:
        options = self.options
        model = super().build(task)
        return weight_space.vbll_head(model, prior_scale=options.prior_scale, initial_scale=options.initial_scale)

    def objective(self, nll: Tensor, latents: Latents, progress: Progress, dataset_size: int) -> Elbo:
        return elbo(nll, latents, dataset_size=dataset_size)


def _pair(train: Examples) -> tuple[Tensor, Tensor]:
    inputs, labels = train
    return inputs, labels


METHODS.add(
    "laplace-head",
    "Laplace approximation of the last layer, Kronecker-factored, one pass to predict",
    LaplaceHeadOptions(),
    LaplaceHeadMethod,
)
METHODS.add("gp-head", "a Gaussian process in place of the last layer (SNGP)", ProcessHeadOptions(), ProcessHead)
METHODS.add("vbll-head", "a variational last layer (VBLL)", VariationalHeadOptions(), VariationalHeadMethod)
