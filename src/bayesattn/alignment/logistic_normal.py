"""Relaxed alignment with logistic-normal weights: the softmax of Gaussian scores."""

from __future__ import annotations

import math

from torch import Tensor

from bayesattn.alignment.relaxation import Relaxation
from bayesattn.numerics.counter_noise import standard_normal
from bayesattn.numerics.precision import to_compute
from bayesattn.scopes.modes import current_generator
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float
from bayesattn.support.configurable import register


@register
class LogisticNormal(Relaxation):
    """E_{z ~ q} log f(z · memory) - KL(q ‖ p) with z = softmax(scores + sigma ε), ε standard normal; pathwise gradients.

    Deng et al. tried it in place of the Dirichlet and report that it did not help either (section 5); they give no details, so the
    scales are hyper-parameters here. In eval mode z is the softmax of the scores. It predicts with the average over draws from the
    prior.

    Args:
        sigma: scale of the posterior's noise.
        prior_sigma: scale of the prior's.
        warm_start: train on the Jensen bound under the prior; posterior scores are taken and not used.
        test_samples: how many draws a prediction averages.
    """

    def __init__(self, sigma: float = 1.0, prior_sigma: float = 1.0, warm_start: bool = False, test_samples: int = 10):
        super().__init__(warm_start, test_samples)
        self.sigma = checks.positive("sigma", sigma)
        self.prior_sigma = checks.positive("prior_sigma", prior_sigma)

    def location(self, scores: Tensor) -> Tensor:
        return to_compute(scores)

    def log_draw(self, location: Tensor, of_prior: bool) -> Tensor:
        noise = standard_normal(location, current_generator())
        return location + (self.prior_sigma if of_prior else self.sigma) * noise

    def divergence(self, q: Tensor, p: Tensor, source_mask: Tensor | None) -> Tensor:
        return logistic_normal_kl(q, p, self.sigma, self.prior_sigma, source_mask)


def logistic_normal_kl(
    q: Float[Tensor, "batch target source"],
    p: Float[Tensor, "batch target source"],
    sigma: float,
    prior_sigma: float,
    source_mask: Bool[Tensor, "batch source"] | None = None,
) -> Float[Tensor, "batch target"]:
    """KL between softmax(q + sigma ε) and softmax(p + prior_sigma ε), over the positions that are not masked.

    The softmax forgets the mean of its arguments and nothing else, so it is the KL of the Gaussians in the T - 1 dimensions where
    they sum to zero: ‖d - mean d‖² / (2 prior_sigma²) + (T - 1) (log(prior_sigma / sigma) + sigma² / (2 prior_sigma²) - 1/2), d = q - p.
    """
    apart = q - p
    if source_mask is None:
        kept = apart.new_full((apart.shape[0], 1), apart.shape[-1])
    else:
        apart = apart.masked_fill(~source_mask.unsqueeze(1), 0.0)
        kept = source_mask.sum(1, keepdim=True).to(apart.dtype)
    centred = apart - (apart.sum(-1) / kept.clamp_min(1.0)).unsqueeze(-1)
    if source_mask is not None:
        centred = centred.masked_fill(~source_mask.unsqueeze(1), 0.0)
    ratio = sigma / prior_sigma
    of_scales = 0.5 * ratio**2 - math.log(ratio) - 0.5
    return centred.square().sum(-1) / (2 * prior_sigma**2) + (kept - 1.0).clamp_min(0.0) * of_scales
