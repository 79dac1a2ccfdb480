"""Functions of real numbers that posteriors, priors and kernels share, written so that they hold at the extremes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesattn.support.annotations import Float

EULER_GAMMA = 0.5772156649015329
SMALLEST_LOG_CONCENTRATION = math.log(1e-20)
"""Concentrations of Gamma draws below this are treated as this: the draws' logarithms and their gradients stay finite."""


def log_gamma_function(log_a: Tensor) -> Tensor:
    """lgamma(exp(log_a)) for any log_a: lgamma(a) = lgamma(a + 1) - log a, so nothing overflows as a → 0."""
    return torch.lgamma(log_a.exp() + 1.0) - log_a


def gamma_kl(log_q: Float[Tensor, "..."], log_p: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """KL(Gamma(q, 1) ‖ Gamma(p, 1)) of each element, from log concentrations.

    lgamma(p) - lgamma(q) + (q - p) psi(q), with psi(q) = psi(q + 1) - 1/q written out so that it holds as q → 0.
    Summed over the keys of a row it is the multi-Gamma KL of the thesis, an upper bound of the Dirichlet's:

        KL_multi-Gamma(q ‖ p) = KL_Dirichlet(q ‖ p) + KL_Gamma(Σ q ‖ Σ p).
    """
    log_q = log_q.clamp_min(SMALLEST_LOG_CONCENTRATION)
    q, p = log_q.exp(), log_p.exp()
    ratio = (log_p - log_q).exp()
    return log_gamma_function(log_p) - log_gamma_function(log_q) + (q - p) * torch.digamma(q + 1.0) - 1.0 + ratio


def exp_with_linear_tail(x: Tensor, limit: float = 60.0) -> Tensor:
    """exp(x) up to `limit`, its tangent beyond: finite with a finite, restoring gradient however large x is."""
    return x.clamp_max(limit).exp() * (1.0 + (x - limit).clamp_min(0.0))


def square_with_linear_tail(x: Tensor, limit: float = 1e15) -> Tensor:
    """x² up to |x| = `limit`, its tangent beyond: finite with a finite, restoring gradient however large x is."""
    inner = x.clamp(-limit, limit)
    return inner * (2.0 * x - inner)
