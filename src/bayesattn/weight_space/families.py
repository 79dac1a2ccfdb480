"""The five families of weight distributions: all are a location plus a scale times standard noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from bayesattn.support import checks
from bayesattn.support.annotations import Float

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Inputs, weights and biases (or None) → the outputs of a linear map or a convolution."""


class Family(ABC):
    """A standard distribution, location 0 and scale 1. `df` is its degrees of freedom, for the one family that has them.

    >>> import torch
    >>> FAMILIES["laplace"].log_density(torch.tensor(0.0)).exp()
    tensor(0.5000)
    """

    name: str
    has_df = False
    is_stable = False
    """Whether sums of independent variables of this family are of this family."""

    @abstractmethod
    def noise(
        self, like: Float[Tensor, "*shape"], df: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Float[Tensor, "*shape"]:
        """A draw of the shape, dtype and device of `like`, differentiable in `df`."""

    @abstractmethod
    def log_density(self, z: Float[Tensor, "*shape"], df: Tensor | None = None) -> Float[Tensor, "*shape"]:
        """log of the density at `z`."""

    @abstractmethod
    def entropy(self, df: Tensor | None = None) -> float | Tensor:
        """Differential entropy, in nats."""

    def scale_of_sums(self, linear: Linear, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The scale of Σ x_i w_i + b with independent w_i and b of these scales, for families with `is_stable`.

        This is what local reparameterisation needs: the sum is drawn in place of the weights.
        """
        raise NotImplementedError(f"Sums of {self.name} weights are of another family.")


class GaussianFamily(Family):
    """exp(-z²/2) / sqrt(2π). Sums: variances add."""

    name = "gaussian"
    is_stable = True

    def noise(self, like, df=None, generator=None):
        return torch.empty_like(like).normal_(generator=generator)

    def log_density(self, z, df=None):
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def entropy(self, df=None):
        return 0.5 * math.log(2 * math.pi * math.e)

    def scale_of_sums(self, linear, x, weight, bias):
        variance = linear(x.square(), weight.square(), None if bias is None else bias.square())
        return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()  # the root has no gradient at 0


class LaplaceFamily(Family):
    """exp(-|z|) / 2."""

    name = "laplace"

    def noise(self, like, df=None, generator=None):
        u = torch.empty_like(like).uniform_(-1.0, 1.0, generator=generator)
        return -u.sign() * torch.log1p(-u.abs().clamp_max(1.0 - torch.finfo(u.dtype).eps))

    def log_density(self, z, df=None):
        return -z.abs() - math.log(2.0)

    def entropy(self, df=None):
        return 1.0 + math.log(2.0)


class LogisticFamily(Family):
    """exp(-z) / (1 + exp(-z))²."""

    name = "logistic"

    def noise(self, like, df=None, generator=None):
        smallest = torch.finfo(like.dtype).eps
        u = torch.empty_like(like).uniform_(smallest, 1.0 - smallest, generator=generator)
        return torch.logit(u)

    def log_density(self, z, df=None):
        size = z.abs()  # symmetric, and this way nothing overflows
        return -size - 2.0 * torch.log1p((-size).exp())

    def entropy(self, df=None):
        return 2.0


class CauchyFamily(Family):
    """1 / (π (1 + z²)). It has no mean: its location is the median. Sums: scales add."""

    name = "cauchy"
    is_stable = True

    def noise(self, like, df=None, generator=None):
        return torch.empty_like(like).cauchy_(generator=generator)

    def log_density(self, z, df=None):
        return -math.log(math.pi) - log1p_square(z)

    def entropy(self, df=None):
        return math.log(4 * math.pi)

    def scale_of_sums(self, linear, x, weight, bias):
        return linear(x.abs(), weight, bias)


class StudentFamily(Family):
    """Γ((ν+1)/2) / (sqrt(νπ) Γ(ν/2)) · (1 + z²/ν)^(-(ν+1)/2), drawn as z = ε / sqrt(g), g ~ Gamma(ν/2, rate ν/2).

    The Gamma draw is differentiable in ν by implicit reparameterisation. (The thesis prints z = ε g, which is another
    distribution: its variance at ν = 5 is 1.40 and not 5/3.)
    """

    name = "student"
    has_df = True

    def noise(self, like, df=None, generator=None):
        half = 0.5 * _given(df).expand(like.shape)
        # a Gamma draw of small shape may be 0 in float32; at the smallest normal number 1/sqrt(g) is 1e19, still finite
        gamma = torch._standard_gamma(half, generator=generator).clamp_min(torch.finfo(half.dtype).tiny)
        return torch.empty_like(like).normal_(generator=generator) * (half / gamma).sqrt()

    def log_density(self, z, df=None):
        df = _given(df)
        constant = torch.lgamma(0.5 * (df + 1.0)) - torch.lgamma(0.5 * df) - 0.5 * (df * math.pi).log()
        return constant - 0.5 * (df + 1.0) * log1p_square(z / df.sqrt())

    def entropy(self, df=None):
        df = _given(df)
        half, next_half = 0.5 * df, 0.5 * (df + 1.0)
        log_beta = torch.lgamma(half) + math.lgamma(0.5) - torch.lgamma(next_half)
        return next_half * (torch.digamma(next_half) - torch.digamma(half)) + 0.5 * df.log() + log_beta


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (GaussianFamily(), LaplaceFamily(), LogisticFamily(), CauchyFamily(), StudentFamily())
}


def family_by_name(name: str) -> Family:
    """The family of this name."""
    return FAMILIES[checks.one_of("family", name, FAMILIES)]


def log1p_square(z: Tensor) -> Tensor:
    """log(1 + z²) for any z: beyond 1e9, where z² would overflow, it is 2 log|z|."""
    size = z.abs()
    return torch.where(size > 1e9, 2.0 * size.clamp_min(1.0).log(), torch.log1p(size.clamp_max(1e9).square()))


def _given(df: Tensor | None) -> Tensor:
    if df is None:
        raise ValueError("The Student-t family needs degrees of freedom: pass df=.")
    return df
