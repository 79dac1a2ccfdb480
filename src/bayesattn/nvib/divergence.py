"""The two KLs of NVIB: of the weights (Dirichlet) and of the vectors (Gaussian)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from bayesattn.numerics.formulas import exp_with_linear_tail, log_gamma_function
from bayesattn.nvib.mixture import Mixture
from bayesattn.nvib.prior import conditional_log_alpha
from bayesattn.support.annotations import Float

Normalisation = Literal["paper", "sum"]

_LARGE_CONCENTRATION = 1e4
"""From here on Stirling's series, to its second term, is exact in float64, and lgamma's differences no longer are."""


def pseudo_count_kl(
    posterior: Mixture,
    prior_log_alpha: Float[Tensor, ""],
    *,
    delta: float = 0.0,
    kappa: int = 1,
    normalisation: Normalisation = "paper",
) -> Float[Tensor, " batch"]:
    """KL of the weights. With N components that are no padding (the prior's is one of them) and K0 = κ N,

        KL( Dir(a_q / K0, K0 times) ‖ Dir(a_p / K0, K0 times) ),    a_q = Σ_i α_i,   a_p = α_p + δ (N - 1),

    divided by N ("paper") or as it is ("sum"). The paper's bound spreads the pseudo-counts evenly, so it depends on
    their total alone. δ is the conditional prior's pseudo-count for each token, α^Δ. Computed in float64.
    """
    count = posterior.mask.sum(-1).double()
    log_q = posterior.log_weight_or_zero.double().logsumexp(-1)
    log_p = conditional_log_alpha(prior_log_alpha, delta, count)
    kl = symmetric_dirichlet_kl(log_q, log_p, kappa * count)
    return (kl / count if normalisation == "paper" else kl).to(posterior.mean.dtype)


def gaussian_kl(
    posterior: Mixture,
    prior_mean: Float[Tensor, " dim"],
    prior_log_variance: Float[Tensor, " dim"],
    *,
    kappa: int = 1,
    normalisation: Normalisation = "paper",
) -> Float[Tensor, " batch"]:
    """KL of the vectors: κ Σ_i (α_i / a_q) KL( N(μ_i, σ_i²) ‖ N(m_p, s_p²) ), a mean over dimensions ("paper").

    "sum" is the sum that theory has: K0 = κ N times the expected weight, and a sum over dimensions; larger by N · dim.
    """
    if posterior.log_variance is None:
        raise ValueError("posterior must be Gaussian, got points: take the KL before sampling.")
    dim = posterior.mean.shape[-1]
    log_ratio = posterior.log_variance - prior_log_variance
    distance = (posterior.mean - prior_mean).square() @ (-prior_log_variance).exp()
    components = 0.5 * (exp_with_linear_tail(log_ratio).sum(-1) - dim - log_ratio.sum(-1) + distance)
    kl = kappa * (posterior.weights * components).sum(-1)
    return kl / dim if normalisation == "paper" else kl * posterior.mask.sum(-1)


def symmetric_dirichlet_kl(
    log_q: Float[Tensor, "*shape"], log_p: Float[Tensor, "*shape"], components: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """KL( Dir(q/K, K times) ‖ Dir(p/K, K times) ) from log q, log p and K, all float64, for q and p of any size.

    With s(x) = lgamma(x) - K lgamma(x/K) - x log K and r(q) = q (psi(q/K) - psi(q) + log K) it is

        s(q) - s(p) + (1 - p/q) r(q):

    the terms in x log K, beside which everything else is lost when q is large, cancel before they are formed. Where p/q is above
    e^60 it is continued by its tangent in log(p/q).
    """
    ratio = exp_with_linear_tail(log_p - log_q)
    difference = _log_normaliser(log_q, components) - _log_normaliser(log_p, components)
    return difference + (1.0 - ratio) * _digamma_gap(log_q, components)


def _log_normaliser(log_x: Tensor, k: Tensor) -> Tensor:
    """lgamma(x) - K lgamma(x/K) - x log K."""
    limit = (_LARGE_CONCENTRATION * k).log()
    small, large = torch.minimum(log_x, limit), torch.maximum(log_x, limit)
    direct = log_gamma_function(small) - k * log_gamma_function(small - k.log()) - small.exp() * k.log()
    inverse = (-large).exp()
    series = 0.5 * (k - 1.0) * (large - math.log(2.0 * math.pi)) - 0.5 * k * k.log() + (1.0 - k.square()) / 12 * inverse
    return torch.where(log_x < limit, direct, series)


def _digamma_gap(log_x: Tensor, k: Tensor) -> Tensor:
    """x (psi(x/K) - psi(x) + log K), with psi(x) = psi(x + 1) - 1/x written out."""
    limit = (_LARGE_CONCENTRATION * k).log()
    small, large = torch.minimum(log_x, limit), torch.maximum(log_x, limit)
    x = small.exp()
    direct = x * (torch.digamma(x / k + 1.0) - torch.digamma(x + 1.0) + k.log()) - k + 1.0
    series = 0.5 * (1.0 - k) + (1.0 - k.square()) / 12 * (-large).exp()
    return torch.where(log_x < limit, direct, series)
