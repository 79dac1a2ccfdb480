"""Weight-space inference: mean-field posteriors, concrete dropout, Laplace, SWAG; of the whole network or of its attention layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from bayesattn import weight_space
from bayesattn.experiments.methods.base import Method, Progress
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.tasks.base import Examples, Task
from bayesattn.numerics.positive import THESIS_START
from bayesattn.objective import Elbo, elbo
from bayesattn.scopes.recording import Latents
from bayesattn.support import checks
from bayesattn.weight_space.families import FAMILIES
from bayesattn.weight_space.laplace import LinearisedNetwork, Structure
from bayesattn.weight_space.priors import Priors
from bayesattn.weight_space.selection import Where


@dataclass(frozen=True)
class GlobalKLOptions:
    """How the KL of the weights enters the objective."""

    kl_weight: float = 1.0
    """Factor of the KL; 1 is the ELBO (the thesis: not re-weighted)."""

    def __post_init__(self) -> None:
        checks.finite("kl_weight", self.kl_weight)


class GlobalKLMethod(Method):
    """A model with random weights, trained by the ELBO: the KL counts once for the whole data set."""

    samples = True

    def __init__(self, options: GlobalKLOptions):
        self.kl_weight = options.kl_weight

    def objective(self, nll: Tensor, latents: Latents, progress: Progress, dataset_size: int) -> Elbo:
        return elbo(nll, latents, dataset_size=dataset_size, kl_weight=self.kl_weight)


@dataclass(frozen=True)
class MeanFieldOptions(GlobalKLOptions):
    """Mean-field variational inference."""

    prior: str = "naive"
    """"naive": one Gaussian for all weights. "thesis": the thesis's improved priors of this task. "fitted": ours, of
    `bayesattn study`. Else a file that it wrote."""
    prior_scale: float = 1.0
    """Scale of the naive prior (not stated in the thesis)."""
    initial_scale: float = THESIS_START
    """Where the scales start: softplus(-7), as in the thesis."""
    initial_df: float = 5.0
    """Where the degrees of freedom of vi-student start (not stated in the thesis)."""
    kl_samples: int = 1
    """Draws for each estimate of a KL that has no closed form. The thesis: "we draw 30 posterior samples to compute the predictive
    distribution and KL divergence" on the toy series, 10 on POS and MNIST; its tables have that here, too."""


class MeanField(GlobalKLMethod):
    """Every weight of the chosen layers has a distribution of one family."""

    def __init__(self, options: MeanFieldOptions, family: str, where: Where):
        super().__init__(options)
        self.options = options
        self.family = family
        self.where = where

    def build(self, task: Task) -> nn.Module:
        return weight_space.mean_field(
            super().build(task),
            self.family,
            self.prior(task),
            where=self.where,
            initial_scale=self.options.initial_scale,
            initial_df=self.options.initial_df,
            kl_samples=self.options.kl_samples,
        )

    def prior(self, task: Task) -> Priors:
        """The prior that the options name."""
        if self.options.prior == "naive":
            return weight_space.WeightPrior("gaussian", self.options.prior_scale)
        presets = {"thesis": weight_space.thesis_priors, "fitted": weight_space.fitted_priors}
        if self.options.prior not in presets:
            return weight_space.load_priors(Path(self.options.prior))
        if task.weight_priors is None:
            raise ValueError(
                f"There are no priors prior={self.options.prior!r} for this task: use prior='naive', or a file of `bayesattn study`."
            )
        return presets[self.options.prior](task.weight_priors)


@dataclass(frozen=True)
class ConcreteDropoutOptions(GlobalKLOptions):
    """Dropout with learned probabilities."""

    temperature: float = 0.1
    """Of the relaxed coins, as in the thesis."""
    length_scale: float = 1.0
    """l of the prior N(0, 1/l²) (not stated in the thesis)."""


class ConcreteDropoutMethod(GlobalKLMethod):
    """Probabilities start in U(0.1, 0.5), as in the thesis."""

    def __init__(self, options: ConcreteDropoutOptions, where: Where):
        super().__init__(options)
        self.options = options
        self.where = where

    def build(self, task: Task) -> nn.Module:
        return weight_space.concrete_dropout(
            super().build(task),
            where=self.where,
            temperature=self.options.temperature,
            length_scale=self.options.length_scale,
        )


@dataclass(frozen=True)
class LaplaceOptions:
    """Laplace approximation, linearised."""

    prior_precision: float | None = None
    """Precision of the prior; None: that of highest marginal likelihood (not stated in the thesis)."""
    curvature_samples: int | None = 4
    """Random combinations of each example's outputs that the curvature is estimated from; None: exact, a backward pass for every output."""


class Laplace(Method):
    """Maximum likelihood, then a Gaussian around the weights of the chosen layers."""

    samples = True
    finishes = True

    def __init__(self, options: LaplaceOptions, structure: Structure, where: Where):
        self.options = options
        self.structure: Structure = structure
        self.where = where

    def finish(self, model: nn.Module, task: Task, train: Examples) -> None:
        if isinstance(model, LinearisedNetwork):
            return
        if task.likelihood not in ("categorical", "gaussian"):
            raise ValueError(
                f"The Laplace approximation is written for categorical and Gaussian likelihoods, this task's is {task.likelihood!r}."
            )
        given = self.options.prior_precision
        weight_space.laplace(
            model.eval(),
            train[:-1],
            task.likelihood,
            where=self.where,
            structure=self.structure,
            prior_precision="marginal-likelihood" if given is None else given,
            samples=self.options.curvature_samples,
        )


@dataclass(frozen=True)
class SwagOptions:
    """Weights collected at the end of training."""

    rank: int = 20
    """Deviations that are kept for the low-rank part of the covariance."""
    start: float = 0.6
    """Share of the training after which weights are collected, at the end of each epoch."""
    learning_rate_share: float = 0.3
    """From then on the learning rate is constant, this share of its peak."""

    def __post_init__(self) -> None:
        checks.fraction("start", self.start)
        checks.positive("learning_rate_share", self.learning_rate_share)


class Swag(Method):
    """A Gaussian fitted to where the optimiser goes."""

    samples = True

    def __init__(self, options: SwagOptions, where: Where):
        self.options = options
        self.where = where

    def build(self, task: Task) -> nn.Module:
        return weight_space.swag(super().build(task), where=self.where, rank=self.options.rank)

    def learning_rate(self, usual: float, progress: float) -> float:
        return usual if progress < self.options.start else self.options.learning_rate_share

    def after_epoch(self, model: nn.Module, progress: float) -> None:
        if progress > self.options.start:
            weight_space.collect(model)


for _suffix, _words, _where in (("", "", None), ("@attention", ", attention layers only", "attention")):
    for _family in FAMILIES:
        METHODS.add(
            f"vi-{_family}{_suffix}",
            f"{_family} mean-field weights{_words} (thesis)",
            MeanFieldOptions(),
            partial(MeanField, family=_family, where=_where),
        )
    METHODS.add(
        f"concrete-dropout{_suffix}",
        f"dropout with learned probabilities{_words} (thesis)",
        ConcreteDropoutOptions(),
        partial(ConcreteDropoutMethod, where=_where),
    )
    METHODS.add(
        f"laplace{_suffix}",
        f"linearised Laplace, {'diagonal' if _where is None else 'full'} curvature{_words} (thesis)",
        LaplaceOptions(),
        partial(Laplace, structure="diagonal" if _where is None else "full", where=_where),
    )
    METHODS.add(
        f"swag{_suffix}", f"SWAG, weights collected in training{_words}", SwagOptions(), partial(Swag, where=_where)
    )
METHODS.add(
    "laplace-final",
    "linearised Laplace, full curvature of the last layer (thesis)",
    LaplaceOptions(),
    partial(Laplace, structure="full", where="last"),
)
for _suffix, _words, _prior in (
    ("improved", "the thesis's improved priors", "thesis"),
    ("fitted", "priors fitted to our own trained models", "fitted"),
):
    for _family in FAMILIES:
        METHODS.add(
            f"vi-{_family}-{_suffix}",
            f"{_family} mean-field weights with {_words}",
            MeanFieldOptions(prior=_prior),
            partial(MeanField, family=_family, where=None),
        )
