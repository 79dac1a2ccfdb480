"""What torch.distributions lacks: Gamma draws in log space, and KL(Weibull ‖ Gamma).

Everything takes the logarithm of the concentration, because that is what attention has (log a + log softmax)
and because concentrations below 1e-38 and their draws have no float32 representation, while their logarithms do.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Gamma, Weibull
from torch.distributions.kl import register_kl

from bayesattn.numerics.counter_gamma import log_gamma
from bayesattn.numerics.counter_noise import CounterNoise, Noise, log_exponential
from bayesattn.numerics.formulas import EULER_GAMMA, SMALLEST_LOG_CONCENTRATION
from bayesattn.support.annotations import Float


def log_gamma_rsample(log_concentration: Float[Tensor, "*shape"], generator: Noise = None) -> Float[Tensor, "*shape"]:
    """log X with X ~ Gamma(exp(log_concentration), 1), with pathwise gradients.

    The boost identity Gamma(a) = Gamma(a + 1) · U^(1/a) in logarithms,

        log X = log G + log(U) / a,    G ~ Gamma(a + 1),  -log U ~ Exponential(1),

    is exact for every a. The gradient is the implicit one of G plus the explicit one of log(U) / a. In float32 a
    direct Gamma draw underflows for a < 0.1 and is clamped, so that all small draws tie; this one does not.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> bool(log_gamma_rsample(torch.full((1000,), -12.0)).isfinite().all())
    True
    """
    log_a = log_concentration.clamp_min(SMALLEST_LOG_CONCENTRATION)
    if isinstance(generator, CounterNoise):
        return log_gamma(generator, log_a)
    a = log_a.exp()
    boosted = torch._standard_gamma(a + 1.0, generator=generator)
    tiny = torch.finfo(a.dtype).tiny
    exponential = torch.empty_like(a).exponential_(generator=generator)
    return boosted.clamp_min(tiny).log() - exponential * (-log_a).exp()  # not / a: its gradient has a² and overflows


def approximate_log_gamma_rsample(
    log_concentration: Float[Tensor, "*shape"], generator: Noise = None
) -> Float[Tensor, "*shape"]:
    """log of the inverse-CDF approximation X = (U · a · Gamma(a))^(1/a) (Joo et al. 2020).

    Good for a < 1 only: for larger a its variance is far too small (a quarter at a = 10). Kept because the thesis
    uses it; `log_gamma_rsample` is exact at the same price.
    """
    log_a = log_concentration.clamp_min(SMALLEST_LOG_CONCENTRATION)
    a = log_a.exp()
    exponential = log_exponential(a, generator).exp()
    return (torch.lgamma(a + 1.0) - exponential) * (-log_a).exp()


@register_kl(Weibull, Gamma)
def _kl_weibull_gamma(p: Weibull, q: Gamma) -> Tensor:
    """Registered for `torch.distributions.kl_divergence`; parameters broadcast."""
    k = p.concentration
    constant = k.log() - EULER_GAMMA - 1.0
    per_alpha = EULER_GAMMA / k - p.scale.log() - q.rate.log()
    return q.concentration * per_alpha + q.rate * p.mean + torch.lgamma(q.concentration) + constant
