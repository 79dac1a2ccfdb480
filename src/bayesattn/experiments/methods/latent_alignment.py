"""Latent alignment (Deng et al. 2018): one method for each objective of `bayesattn.alignment`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from bayesattn import alignment
from bayesattn.alignment import Objective
from bayesattn.alignment.expectation import Baseline
from bayesattn.alignment.mixture import CHUNK
from bayesattn.alignment.relaxation import Relaxation
from bayesattn.experiments.methods.base import Method, Progress
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.methods.variational_attention import KLOptions
from bayesattn.experiments.tasks.base import Task
from bayesattn.objective import Elbo, elbo
from bayesattn.scopes.recording import Latents


@dataclass(frozen=True)
class SoftOptions:
    """Soft attention has no options of its own."""


@dataclass(frozen=True)
class EnumeratedOptions:
    """Every alignment is tried."""

    chunk: int = CHUNK
    """Alignments at once: fewer take less memory."""


@dataclass(frozen=True)
class SampledOptions:
    """Alignments are drawn; score-function gradients."""

    samples: int = 1
    """Draws for each target token."""
    baseline: Baseline = "soft"
    """What is subtracted from the reward: the likelihood under soft attention, its mean over the other draws, or nothing."""
    train_baseline: bool = False
    """Train the baseline too."""


@dataclass(frozen=True)
class VariationalEnumeratedOptions(KLOptions, EnumeratedOptions):
    """Every alignment is tried, weighed by the posterior."""


@dataclass(frozen=True)
class VariationalSampledOptions(KLOptions, SampledOptions):
    """Alignments are drawn from the posterior."""


@dataclass(frozen=True)
class RelaxedOptions(KLOptions):
    """Dirichlet weights."""

    warm_start: float = 0.3
    """Share of the training on the Jensen bound, without posterior (not stated in the paper)."""
    test_samples: int = 10
    """Draws of a prediction (not stated in the paper)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.warm_start <= 1:
            raise ValueError(f"warm_start must lie in [0, 1], got {self.warm_start!r}: it is a share of the training.")


@dataclass(frozen=True)
class LogisticNormalOptions(RelaxedOptions):
    """Logistic-normal weights: the softmax of Gaussian scores."""

    sigma: float = 1.0
    """Scale of the posterior's noise (not stated in the paper)."""
    prior_sigma: float = 1.0
    """Scale of the prior's noise (not stated in the paper)."""


@dataclass(frozen=True)
class GumbelOptions(KLOptions):
    """Gumbel-softmax weights."""

    temperature: float = 0.1
    """Low values are nearer to single alignments."""


@dataclass(frozen=True)
class ImportanceOptions:
    """The multi-sample bound."""

    samples: int = 5
    """Draws for each target token."""
    gradient: Literal["vimco", "wake"] = "vimco"
    """What trains the posterior: the bound's own gradient, or that of the released code."""


class LatentAlignment(Method):
    """A task's model with one objective, which is what it is trained by and how it predicts."""

    def __init__(self, options: Any, make: Callable[[Any], Objective]):
        if isinstance(options, KLOptions) and options.bound_samples != 1:
            raise ValueError(
                f"bound_samples={options.bound_samples} is for methods of attention weights such as bam-wc: an objective of latent "
                "alignment has its own samples."
            )
        self.options: Any = options
        self.make = make
        make(options)  # what is wrong with the options is said here, not when the data has been read

    def build(self, task: Task) -> nn.Module:
        return task.build_with(self.make(self.options), self.dropout)

    def objective(self, nll: Tensor, latents: Latents, progress: Progress, dataset_size: int) -> Elbo:
        if isinstance(self.options, KLOptions):
            return self.options.elbo(nll, latents, progress)
        return elbo(nll, latents)


class RelaxedAlignment(LatentAlignment):
    """Starts on the Jensen bound, without which Dirichlet weights collapse to flat ones."""

    def start_epoch(self, model: nn.Module, progress: float) -> None:
        objective = self.make(self.options)
        assert isinstance(objective, Relaxation)
        objective.warm_start = progress < self.options.warm_start
        model.objective = objective


def _sampled(kind: Callable[..., Objective], options: SampledOptions) -> Objective:
    return kind(options.samples, options.baseline, options.train_baseline)


_OBJECTIVES: tuple[tuple[str, str, Any, Callable[[Any], Objective]], ...] = (
    ("soft", "soft attention", SoftOptions(), lambda options: alignment.Soft()),
    ("marginal", "exact marginal", EnumeratedOptions(), lambda options: alignment.Marginal(options.chunk)),
    ("hard-enumerated", "hard attention", EnumeratedOptions(), lambda options: alignment.Hard(chunk=options.chunk)),
    ("hard-sampled", "hard attention by draws", SampledOptions(), partial(_sampled, alignment.Hard)),
    (
        "variational-enumerated",
        "variational attention",
        VariationalEnumeratedOptions(),
        lambda options: alignment.Variational(chunk=options.chunk),
    ),
    (
        "variational-sampled",
        "variational attention by draws",
        VariationalSampledOptions(),
        partial(_sampled, alignment.Variational),
    ),
    (
        "gumbel",
        "Gumbel-softmax draws from the posterior",
        GumbelOptions(),
        lambda options: alignment.Gumbel(options.temperature),
    ),
    (
        "importance",
        "multi-sample bound",
        ImportanceOptions(),
        lambda options: alignment.Importance(options.samples, options.gradient),
    ),
)
for _name, _words, _options, _make in _OBJECTIVES:
    METHODS.add(_name, f"latent alignment: {_words} (Deng et al.)", _options, partial(LatentAlignment, make=_make))
METHODS.add(
    "relaxed",
    "latent alignment: Dirichlet weights (Deng et al.)",
    RelaxedOptions(),
    partial(RelaxedAlignment, make=lambda options: alignment.Relaxed(test_samples=options.test_samples)),
)
METHODS.add(
    "logistic-normal",
    "latent alignment: logistic-normal weights (Deng et al.)",
    LogisticNormalOptions(),
    partial(
        RelaxedAlignment,
        make=lambda options: alignment.LogisticNormal(
            options.sigma, options.prior_sigma, test_samples=options.test_samples
        ),
    ),
)
