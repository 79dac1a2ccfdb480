"""KL between a location-scale posterior of weights and their prior: closed where a closed form is known, else by Monte Carlo.

KL(q ‖ p) = -H(q) - E_q[log p]. The entropy is closed for all five families; the expectation is looked up by the pair of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.support.annotations import Float
from bayesattn.weight_space.families import Family
from bayesattn.weight_space.priors import WeightPrior

CrossEntropy = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(location, scale, df) of the posterior, all in units of the prior's scale → -E_q[log p] of the standard prior."""

_CLOSED: dict[tuple[str, str], CrossEntropy] = {}


def closed_cross_entropy(posterior: str, prior: str) -> Callable[[CrossEntropy], CrossEntropy]:
    """Register a closed form for a pair of families."""

    def add(function: CrossEntropy) -> CrossEntropy:
        _CLOSED[posterior, prior] = function
        return function

    return add


def is_closed(posterior: Family, prior: WeightPrior) -> bool:
    """Whether the KL of this pair has a closed form here."""
    return (posterior.name, prior.family) in _CLOSED


def kl_to_prior(
    family: Family,
    location: Float[Tensor, "*shape"],
    scale: Float[Tensor, "*shape"],
    df: Float[Tensor, "*shape"] | None,
    prior: WeightPrior,
    draws: list[Tensor],
) -> Float[Tensor, ""]:
    """KL of all weights together, their location being relative to the prior's.

    `draws` are samples of the posterior, relative to the prior's location too: used where there is no closed form, and then at
    least one is needed.
    """
    entropy = family.entropy(df) + scale.log()
    closed = _CLOSED.get((family.name, prior.family))
    if closed is not None:
        relative = closed(location / prior.scale, scale / prior.scale, df)
        return (relative + math.log(prior.scale) - entropy).sum()
    log_prior = torch.stack([prior.log_density(draw).sum() for draw in draws]).mean()
    return -entropy.sum() - log_prior


def _second_moment(location: Tensor, variance: Tensor) -> Tensor:
    """-E[log N(w; 0, 1)] from the first two moments of w."""
    return 0.5 * (location.square() + variance) + 0.5 * math.log(2 * math.pi)


@closed_cross_entropy("gaussian", "gaussian")
def _gaussian_gaussian(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    return _second_moment(location, scale.square())


@closed_cross_entropy("laplace", "gaussian")
def _laplace_gaussian(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    return _second_moment(location, 2.0 * scale.square())


@closed_cross_entropy("logistic", "gaussian")
def _logistic_gaussian(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    return _second_moment(location, (math.pi * scale).square() / 3.0)


@closed_cross_entropy("student", "gaussian")
def _student_gaussian(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    assert df is not None
    return _second_moment(location, scale.square() * df / (df - 2.0))


@closed_cross_entropy("gaussian", "laplace")
def _gaussian_laplace(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    z = location / scale
    folded = math.sqrt(2 / math.pi) * scale * (-0.5 * z.square()).exp() + location * torch.erf(z / math.sqrt(2))
    return folded + math.log(2.0)


@closed_cross_entropy("laplace", "laplace")
def _laplace_laplace(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    size = location.abs()
    return size + scale * (-size / scale).exp() + math.log(2.0)


@closed_cross_entropy("logistic", "laplace")
def _logistic_laplace(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    return 2.0 * scale * F.softplus(location / scale) - location + math.log(2.0)


@closed_cross_entropy("cauchy", "cauchy")
def _cauchy_cauchy(location: Tensor, scale: Tensor, df: Tensor | None) -> Tensor:
    return ((1.0 + scale).square() + location.square()).log() + math.log(math.pi)
