"""Relaxed alignment: Dirichlet weights instead of a categorical choice."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.alignment.relaxation import Relaxation
from bayesattn.numerics.draws import log_gamma_rsample
from bayesattn.numerics.formulas import gamma_kl
from bayesattn.numerics.precision import to_compute
from bayesattn.scopes.modes import current_generator
from bayesattn.support.annotations import Bool, Float
from bayesattn.support.configurable import register

LARGEST_LOG_CONCENTRATION = 6.0
"""Scores are clamped to ± this: concentrations of 0.0025 to 403."""


@register
class Relaxed(Relaxation):
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

    def location(self, scores: Tensor) -> Tensor:
        return to_compute(scores).clamp(-LARGEST_LOG_CONCENTRATION, LARGEST_LOG_CONCENTRATION)

    def log_draw(self, location: Tensor, of_prior: bool) -> Tensor:
        return log_gamma_rsample(location, current_generator())

    def divergence(self, q: Tensor, p: Tensor, source_mask: Tensor | None) -> Tensor:
        return dirichlet_kl(q, p, source_mask)


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
