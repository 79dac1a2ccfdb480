"""Maximum likelihood, MC dropout, deep ensembles."""

from __future__ import annotations

from dataclasses import dataclass

from bayesattn.experiments.methods.base import Method
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.tasks.base import Task
from bayesattn.support import checks

_PLAIN = ("mle", "gat")
"""Maximum likelihood, under both of its names."""


@dataclass(frozen=True)
class MaximumLikelihoodOptions:
    """Maximum likelihood has no options of its own."""


class MaximumLikelihood(Method):
    """The base model as it is: one prediction, no sampling."""

    def __init__(self, options: MaximumLikelihoodOptions):
        pass


@dataclass(frozen=True)
class DropoutOptions:
    """MC dropout (Gal and Ghahramani 2016)."""

    dropout: float = 0.1
    """Dropout of every layer, in training and in prediction."""


class MCDropout(Method):
    """Dropout that stays on when predicting."""

    samples = True
    samples_dropout = True

    def __init__(self, options: DropoutOptions):
        self.dropout = checks.fraction("dropout", checks.positive("dropout", options.dropout))

    def first_trained_by(self, task: Task) -> tuple[str, ...]:
        return _PLAIN if self.dropout == task.dropout else ()


@dataclass(frozen=True)
class EnsembleOptions:
    """Deep ensemble (Lakshminarayanan et al. 2017)."""

    members: int = 5
    """Independently trained models (not stated in the thesis)."""


class Ensemble(Method):
    """Several maximum-likelihood models; the prediction is their mixture."""

    def __init__(self, options: EnsembleOptions):
        self.members = checks.whole("members", options.members)

    def first_trained_by(self, task: Task) -> tuple[str, ...]:
        return _PLAIN

    def with_fewer_members(self) -> list[EnsembleOptions]:
        return [EnsembleOptions(count) for count in range(self.members - 1, 1, -1)]


METHODS.add("mle", "maximum likelihood, one deterministic model", MaximumLikelihoodOptions(), MaximumLikelihood)
METHODS.add("mc-dropout", "dropout left on in prediction", DropoutOptions(), MCDropout)
METHODS.add("ensemble", "several maximum-likelihood models", EnsembleOptions(), Ensemble)
METHODS.add(
    "gat", "maximum likelihood, under the name that it has on graphs", MaximumLikelihoodOptions(), MaximumLikelihood
)
