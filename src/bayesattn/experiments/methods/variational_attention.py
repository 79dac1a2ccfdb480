"""Variational attention: the thesis's Gaussian and Dirichlet weights, and BAM's Weibull and lognormal ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.experiments.methods.base import Method, Progress
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.registry import added_later
from bayesattn.experiments.tasks.base import Examples, Task
from bayesattn.numerics.positive import THESIS_START
from bayesattn.objective import Elbo, KLReduction, elbo
from bayesattn.posteriors import Posterior
from bayesattn.posteriors.priors import Over
from bayesattn.schedules import sigmoid
from bayesattn.scopes.recording import Latents
from bayesattn.support import checks


@dataclass(frozen=True)
class KLOptions:
    """How the KL of the attention weights enters the objective."""

    kl_weight: float = 1.0
    """Factor of the KL; 1 is the ELBO (the thesis: not re-weighted)."""
    kl_anneal: float = 0.0
    """Share of the training in which the factor rises linearly from 0."""
    kl_reduction: KLReduction = "sum"
    """How the KL of one example is formed: "sum" is the ELBO, "mean" the average over all weights, as BAM's code has it."""
    kl_sigmoid: float = added_later(0.0)
    """Annealing by the share of the training that is done: the factor is multiplied by sigmoid(kl_sigmoid · share). 0: none."""
    kl_gradient: bool = added_later(True)
    """False: the KL is in the loss that is reported, but without a gradient, as in BAM's code for language models."""
    samples_dropout: bool = added_later(False)
    """Leave the model's dropout on in sampled predictions, as BAM does."""
    kl_rho: float = added_later(0.0)
    """BAM's annealing rate ρ: the factor is multiplied by λ = sigmoid(ρ · t) after t minibatches (algorithm 1: "λ = sigmoid(t * ρ)",
    "t ← t + 1" with each random minibatch). 0: none."""
    bound_samples: int = added_later(1)
    """Draws of the weights whose likelihoods are averaged before the logarithm, as a prediction averages them (the m-sample bound of
    Morningstar et al. 2022), at the price of as many passes. 1: the ELBO."""

    def __post_init__(self) -> None:
        checks.finite("kl_weight", self.kl_weight)
        checks.whole("bound_samples", self.bound_samples)
        for name in ("kl_sigmoid", "kl_rho"):
            if (value := getattr(self, name)) and checks.finite(name, value) < 0:
                raise ValueError(
                    f"{name} must not be negative, got {value!r}: it is the rate at which the KL's weight rises."
                )
        if not 0 <= self.kl_anneal <= 1:
            raise ValueError(f"kl_anneal must lie in [0, 1], got {self.kl_anneal!r}: it is a share of the training.")

    def elbo(self, nll: Tensor, latents: Latents, progress: Progress) -> Elbo:
        """The loss of a batch when so much of the training is done."""
        anneal = 1.0 if self.kl_anneal == 0 else min(1.0, progress.share / self.kl_anneal)
        if self.kl_sigmoid:
            anneal *= sigmoid(self.kl_sigmoid / progress.steps)(progress.step)
        if self.kl_rho:
            anneal *= sigmoid(self.kl_rho)(progress.step)
        if self.kl_reduction in ("sum", "per_token"):  # the others average over all that was recorded
            anneal /= self.bound_samples
        weight = self.kl_weight * anneal
        found = elbo(nll, latents, kl_weight=weight, kl_reduction=self.kl_reduction, compare_gradients=False)
        if self.kl_gradient and found.kl_weight:
            return found
        # not 0 · KL: the prior's network would get a gradient of 0, and with it the optimiser's weight decay
        kl = found.kl_weight * (found.local_kl + found.global_kl)
        return replace(found, loss=elbo(nll, None).loss + kl)


class AttentionMethod(Method):
    """The base model with a posterior in each of its attention layers, trained by the ELBO."""

    samples = True

    def __init__(self, options: KLOptions):
        self.kl = options
        self.samples_dropout = options.samples_dropout

    @abstractmethod
    def posterior(self, task: Task) -> Posterior:
        """The distribution of the attention weights."""

    def build(self, task: Task) -> nn.Module:
        return task.build_with(self.posterior(task), self.dropout)

    def nll(self, task: Task, model: nn.Module, batch: Examples) -> Tensor:
        """Of the mean of the draws' likelihoods."""
        if self.kl.bound_samples == 1:
            return task.nll(model, batch)
        draws = torch.stack([task.nll(model, batch) for _ in range(self.kl.bound_samples)])
        return math.log(len(draws)) - (-draws).logsumexp(0)

    def objective(self, nll: Tensor, latents: Latents, progress: Progress, dataset_size: int) -> Elbo:
        return self.kl.elbo(nll, latents, progress)


@dataclass(frozen=True)
class GaussianOptions(KLOptions):
    """Gaussian logits with learned scale."""

    prior_sigma: float = 1.0
    """Scale of the prior, which is centred on the same logits (not stated in the thesis)."""
    initial_sigma: float = THESIS_START
    """Where the scale starts: softplus(-7), as in the thesis."""
    network_width: int = 16
    """Width of the network of the data-dependent form (not stated in the thesis)."""


class GaussianAttention(AttentionMethod):
    """Tied to positions as in the thesis, where the task has a longest length."""

    def __init__(self, options: GaussianOptions, data_dependent: bool):
        super().__init__(options)
        self.options = options
        self.data_dependent = data_dependent

    def posterior(self, task: Task) -> Posterior:
        return ba.Gaussian(
            self.options.prior_sigma,
            self.options.initial_sigma,
            self.data_dependent,
            max_len=task.max_len,
            hidden=self.options.network_width,
        )


@dataclass(frozen=True)
class DirichletOptions(KLOptions):
    """Dirichlet weights with learned sharpness a: alpha = a · softmax(scores)."""

    prior_concentration: float = 0.99
    """Concentration of the symmetric prior (the thesis: "as in Joo et al.")."""
    initial_sharpness: float | None = None
    """Where a starts. None: the task's longest length (10 if it has none), at which uniform attention has next to no KL. The
    thesis's softplus(-7), 0.000911, has a KL of 6e5 nats for each row of 24 keys: training sees nothing else."""
    network_width: int = 16
    """Width of the network of the data-dependent form (not stated in the thesis)."""


class DirichletAttention(AttentionMethod):
    """Exact, or with the thesis's inverse-CDF approximation of the Gamma draws; always in log space."""

    def __init__(self, options: DirichletOptions, data_dependent: bool, approximate: bool):
        super().__init__(options)
        self.options = options
        self.data_dependent = data_dependent
        self.approximate = approximate

    def posterior(self, task: Task) -> Posterior:
        sharpness = self.options.initial_sharpness
        return ba.Dirichlet(
            self.options.prior_concentration,
            float(task.max_len or 10) if sharpness is None else sharpness,
            self.data_dependent,
            max_len=task.max_len,
            approximate=self.approximate,
            hidden=self.options.network_width,
        )


KLForm = Literal["code", "printed"]
"""BAM's KL as its released code has it (normalised scores; a prior on the scale of attention weights, α = β Ψ or μ = log Ψ), or as its
equations 2 to 5 print it: raw scores, "let α = Ψ", "let μ = Ψ". As printed, it is summed: kl_reduction="sum"."""
_FORMS_OF_KL: tuple[KLForm, ...] = ("code", "printed")


@dataclass(frozen=True)
class WeibullOptions(KLOptions):
    """BAM with Weibull weights."""

    kl_reduction: KLReduction = "mean"
    """How the KL of one example is formed: "mean" is the average over all weights, as BAM's code has it, "sum" the ELBO."""
    k: float = 10.0
    """Shape of the Weibull distribution; large values mean little noise."""
    kl_form: KLForm = added_later("code")
    """The KL of BAM's released "code" (normalised scores, α = β Ψ) or as the paper has it "printed": raw scores, α = Ψ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("kl_form", self.kl_form, _FORMS_OF_KL)


@dataclass(frozen=True)
class FixedWeibullOptions(WeibullOptions):
    """BAM with Weibull weights and one Gamma prior for all."""

    alpha: float = 1.0
    """Concentration of the prior."""
    beta: float = 1.0
    """Rate of the prior."""


@dataclass(frozen=True)
class ContextualWeibullOptions(WeibullOptions):
    """BAM with Weibull weights and a Gamma prior computed from the keys."""

    beta: float = 0.01
    """Rate of the prior."""
    network_width: int = 5
    """Width of the network on the keys."""
    prior_over: Over = added_later("row")
    """The keys among which the prior shares its mass: those of a "row", or "all" of the example, as in BAM's code for graphs."""


class WeibullAttention(AttentionMethod):
    """BAM-WF and BAM-WC."""

    def __init__(self, options: FixedWeibullOptions | ContextualWeibullOptions):
        super().__init__(options)
        self.options = options

    def posterior(self, task: Task) -> Posterior:
        options = self.options
        printed = options.kl_form == "printed"
        if isinstance(options, FixedWeibullOptions):
            prior = ba.GammaPrior(options.alpha, options.beta)
        else:
            scale = "one" if printed else "beta"
            prior = ba.ContextualGamma(options.beta, options.network_width, scale, over=options.prior_over)
        return ba.Weibull(options.k, prior, kl_scores="raw" if printed else "normalised")


@dataclass(frozen=True)
class LogNormalOptions(KLOptions):
    """BAM with lognormal weights."""

    kl_reduction: KLReduction = "mean"
    """How the KL of one example is formed: "mean" is the average over all weights, as BAM's code has it, "sum" the ELBO."""
    sigma: float = 0.1
    """Scale of the log weights; small values mean little noise."""
    prior_sigma: float = 1.0
    """Scale of the prior's log weights."""
    kl_form: KLForm = added_later("code")
    """The KL of BAM's released "code" (normalised scores, μ = log Ψ) or as the paper has it "printed": raw scores, μ = Ψ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("kl_form", self.kl_form, _FORMS_OF_KL)


@dataclass(frozen=True)
class ContextualLogNormalOptions(LogNormalOptions):
    """BAM with lognormal weights and a prior computed from the keys."""

    network_width: int = 5
    """Width of the network on the keys."""
    prior_over: Over = added_later("row")
    """The keys among which the prior shares its mass: those of a "row", or "all" of the example, as in BAM's code for graphs."""


class LogNormalAttention(AttentionMethod):
    """BAM-LF and BAM-LC."""

    def __init__(self, options: LogNormalOptions):
        super().__init__(options)
        self.options = options

    def posterior(self, task: Task) -> Posterior:
        options = self.options
        printed = options.kl_form == "printed"
        if isinstance(options, ContextualLogNormalOptions):
            location = "share" if printed else "log"
            prior = ba.ContextualLogNormal(
                options.prior_sigma, options.network_width, location, over=options.prior_over
            )
        else:
            prior = ba.LogNormalPrior(sigma=options.prior_sigma)
        return ba.LogNormal(options.sigma, prior, kl_scores="raw" if printed else "normalised")


_FORMS = (("", "", False), ("-dd", ", from the data", True))
for _suffix, _words, _dependent in _FORMS:
    METHODS.add(
        f"attn-gaussian{_suffix}",
        f"Gaussian logits, learned scale{_words} (thesis)",
        GaussianOptions(),
        partial(GaussianAttention, data_dependent=_dependent),
    )
for _approximate in (True, False):
    for _suffix, _words, _dependent in _FORMS:
        METHODS.add(
            f"attn-dirichlet{'-approx' if _approximate else ''}{_suffix}",
            f"Dirichlet weights{', approximate draws' if _approximate else ''}, learned sharpness{_words} (thesis)",
            DirichletOptions(),
            partial(DirichletAttention, data_dependent=_dependent, approximate=_approximate),
        )
METHODS.add("bam-wf", "Weibull weights, fixed Gamma prior (BAM)", FixedWeibullOptions(), WeibullAttention)
METHODS.add("bam-wc", "Weibull weights, contextual Gamma prior (BAM)", ContextualWeibullOptions(), WeibullAttention)
METHODS.add("bam-lf", "lognormal weights, fixed prior (BAM)", LogNormalOptions(), LogNormalAttention)
METHODS.add("bam-lc", "lognormal weights, contextual prior (BAM)", ContextualLogNormalOptions(), LogNormalAttention)
METHODS.add(
    "bam-wc-detached",
    "Weibull weights, contextual prior, KL without a gradient: BAM's released code for language models",
    ContextualWeibullOptions(kl_gradient=False),
    WeibullAttention,
)
METHODS.add("bam-no-kl", "Weibull weights and no KL (BAM)", FixedWeibullOptions(kl_weight=0.0), WeibullAttention)
