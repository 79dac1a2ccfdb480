"""Two forms of random attention of which BAM (section 4.3) says that they become NaN: weights that are Gaussian themselves, and a KL that
is sampled as a whole. They are here to be tried, and are no part of the library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bayesattn.alignment import contexts
from bayesattn.alignment.base import Alignment
from bayesattn.alignment.soft import Soft
from bayesattn.experiments.methods.latent_alignment import LatentAlignment
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.methods.variational_attention import (
    ContextualWeibullOptions,
    KLOptions,
    WeibullAttention,
)
from bayesattn.experiments.tasks.base import Task
from bayesattn.numerics.counter_noise import log_exponential, standard_normal
from bayesattn.numerics.formulas import log_gamma_function
from bayesattn.posteriors import Posterior, Weibull
from bayesattn.posteriors.rows import Rows
from bayesattn.scopes.modes import current_generator
from bayesattn.support import checks


class GaussianWeights(Soft):
    """log f(w · memory) - KL, with weights w = softmax(scores) + sigma ε: they may be negative, and do not sum to one.

    After Bahuleyan et al. (2018), whose prior of the context is centred on the mean of the source: here N(1/T, prior_sigma²) of each of
    T weights. `renormalise` divides by their sum, which may be near 0. It predicts as soft attention does, with the mean.
    """

    def __init__(self, sigma: float = 0.1, prior_sigma: float = 1.0, renormalise: bool = False):
        super().__init__()
        self.sigma = checks.positive("sigma", sigma)
        self.prior_sigma = checks.positive("prior_sigma", prior_sigma)
        self.renormalise = renormalise

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        mean = alignment.log_prior.exp()
        real = torch.ones_like(mean)
        if alignment.source_mask is not None:
            real = alignment.source_mask.unsqueeze(1).to(mean.dtype).expand_as(mean)
        weights = mean
        if self.samples_now:
            weights = mean + self.sigma * standard_normal(mean, current_generator()) * real
        if self.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        context = contexts.average(alignment.memory, weights.unsqueeze(0))
        loss = -alignment.log_likelihood(context).squeeze(0)
        from_prior = (mean - 1.0 / real.sum(-1, keepdim=True).clamp_min(1.0)) * real
        ratio = (self.sigma / self.prior_sigma) ** 2
        of_scales = 0.5 * (ratio - math.log(ratio) - 1.0)
        return loss, from_prior.square().sum(-1) / (2 * self.prior_sigma**2) + of_scales * real.sum(-1)


@dataclass(frozen=True)
class GaussianWeightsOptions(KLOptions):
    """Weights that are Gaussian themselves."""

    sigma: float = 0.1
    """Scale of a weight's noise."""
    prior_sigma: float = 1.0
    """Scale of the prior, which is centred on equal weights."""
    renormalise: bool = False
    """Divide the weights by their sum."""


class SampledKLWeibull(Weibull):
    """Weibull weights whose KL is log q(S) - log p(S) of one draw S, with pathwise gradients, and nothing of it in closed form.

        log q(S) - log p(S) = log k + log E - E - alpha log(S) + beta S - alpha log(beta) + lgamma(alpha),    E = (S / lambda)^k

    The draw is another than that of the attention: the expectation and the variance of the estimate are the same.
    """

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        log_alpha = self.prior.log_alpha(keys, rows)
        log_mean = rows.log_softmax(scores) if self.kl_scores == "normalised" else scores
        log_e = log_exponential(scores, current_generator())
        log_s = log_mean - math.lgamma(1.0 + 1.0 / self.k) + log_e / self.k
        log_q = math.log(self.k) + log_e - log_e.exp()
        alpha, beta = log_alpha.exp(), self.prior.beta
        log_p = alpha * (math.log(beta) + log_s) - log_gamma_function(log_alpha) - beta * log_s.exp()
        return rows.total_of_pairs(log_q - log_p)

    @property
    def has_fused_form(self) -> bool:
        return False


class SampledKLAttention(WeibullAttention):
    """BAM-WC with a KL that is sampled as a whole."""

    def posterior(self, task: Task) -> Posterior:
        usual = super().posterior(task)
        assert isinstance(usual, Weibull)
        return SampledKLWeibull(usual.k, usual.prior, "raw" if usual.kl_scores == "raw" else "normalised")


METHODS.add(
    "gaussian-weights",
    "weights that are Gaussian themselves, which BAM says become NaN (Bahuleyan et al.)",
    GaussianWeightsOptions(),
    partial(
        LatentAlignment,
        make=lambda options: GaussianWeights(options.sigma, options.prior_sigma, options.renormalise),
    ),
)
METHODS.add(
    "bam-wc-sampled-kl",
    "Weibull weights, contextual prior, a KL that is sampled as a whole, which BAM says becomes NaN",
    ContextualWeibullOptions(),
    SampledKLAttention,
)
