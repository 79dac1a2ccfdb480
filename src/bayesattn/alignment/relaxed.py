"""Relaxed alignment: Dirichlet weights instead of a categorical choice."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from bayesattn.alignment import categorical, contexts
from bayesattn.alignment.base import Alignment, Objective, without_padding
from bayesattn.alignment.mixture import ContextMixture
from bayesattn.numerics.draws import log_gamma_rsample
from bayesattn.numerics.formulas import gamma_kl
from bayesattn.numerics.precision import to_compute
from bayesattn.scopes.modes import current_generator
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float
from bayesattn.support.configurable import register

LARGEST_LOG_CONCENTRATION = 6.0
"""Scores are clamped to ± this: concentrations of 0.0025 to 403."""


@register
class Relaxed(Objective):
    """E_{z ~ Dirichlet(exp(posterior scores))} log f(z · memory) - KL(Dirichlet ‖ Dirichlet(exp(prior scores))); pathwise gradients.

    From a random start it collapses to flat weights. The paper starts with `warm_start=True`, the Jensen bound
    E_{z ~ Dirichlet(exp(prior scores))} log f(z · memory) without posterior and KL, and goes on with the full objective:

        model.objective = ba.alignment.Relaxed(warm_start=True)     # some epochs
        model.objective = ba.alignment.Relaxed()                    # the rest

    In eval mode z is the Dirichlet's mean. It predicts with the average over draws from the prior.

    Args:
        warm_start: train on the Jensen bound; posterior scores are taken and not used.
        test_samples: how many draws a prediction averages (the paper does not say).
    """

    needs_posterior: ClassVar[bool] = True

    def __init__(self, warm_start: bool = False, test_samples: int = 10):
        super().__init__()
        self.warm_start = warm_start
        self.test_samples = checks.whole("test_samples", test_samples)

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        log_p = _log_concentration(alignment.prior_scores)
        assert alignment.posterior_scores is not None  # Objective.forward has said so
        if self.warm_start:
            # a gradient of zero and not none: data-parallel training waits for every parameter's
            log_q, kl = log_p, 0.0 * to_compute(alignment.posterior_scores).sum(-1)
        else:
            log_q = _log_concentration(alignment.posterior_scores)
            kl = dirichlet_kl(log_q, log_p, alignment.source_mask)
        drawn = log_gamma_rsample(log_q, current_generator()) if self.samples_now else log_q
        weights = categorical.log_weights(drawn, alignment.source_mask).exp()
        context = contexts.average(alignment.memory, weights.unsqueeze(0))
        return -alignment.log_likelihood(context).squeeze(0), kl

    def mixture(
        self, memory: Tensor, prior_scores: Tensor, *, source_mask: Tensor | None = None, k_max: int | None = None
    ) -> ContextMixture:
        log_p = _log_concentration(prior_scores)
        drawn = log_gamma_rsample(log_p.expand(self.test_samples, *log_p.shape), current_generator())
        if k_max is not None:
            kept = categorical.keep_largest(categorical.log_weights(prior_scores, source_mask), k_max)
            drawn = drawn.masked_fill(kept == torch.finfo(kept.dtype).min, torch.finfo(drawn.dtype).min)
        weights = categorical.log_weights(drawn, source_mask).exp()
        sampled = contexts.average(without_padding(memory, source_mask), weights)
        return ContextMixture(sampled, log_p.new_full(sampled.shape[:-1], -math.log(self.test_samples)))


def dirichlet_kl(
    log_q: Float[Tensor, "batch target source"],
    log_p: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"] | None = None,
) -> Float[Tensor, "batch target"]:
    """KL(Dirichlet(exp log_q) ‖ Dirichlet(exp log_p)) over the positions that are not masked.

    By the identity KL_multi-Gamma(q ‖ p) = KL_Dirichlet(q ‖ p) + KL_Gamma(Σ q ‖ Σ p).
    """
    multi_gamma = gamma_kl(log_q, log_p)
    if source_mask is not None:
        blocked = ~source_mask.unsqueeze(1)
        multi_gamma = multi_gamma.masked_fill(blocked, 0.0)
        lowest = torch.finfo(log_q.dtype).min
        log_q, log_p = log_q.masked_fill(blocked, lowest), log_p.masked_fill(blocked, lowest)
    kl = multi_gamma.sum(-1) - gamma_kl(log_q.logsumexp(-1), log_p.logsumexp(-1))
    return kl if source_mask is None else kl.masked_fill(~source_mask.any(1, keepdim=True), 0.0)


def _log_concentration(scores: Tensor) -> Tensor:
    return to_compute(scores).clamp(-LARGEST_LOG_CONCENTRATION, LARGEST_LOG_CONCENTRATION)
