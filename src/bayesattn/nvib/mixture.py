"""The latent of NVIB: a mixture of weighted vectors, certain or Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.numerics.draws import log_gamma_rsample
from bayesattn.support.annotations import Bool, Float

LOG_VARIANCE_RANGE = (-60.0, 20.0)
"""Where a component's log σ² is kept when it is used; its KL sees it as it is, and draws it back."""

_LARGE_LOG_ALPHA = 16.0


@dataclass(frozen=True)
class Mixture:
    """Σ_i w_i N(mean_i, diag exp(log_variance_i)), for each example; with `log_variance=None`, weighted points.

    Weights are unnormalised and in logarithms, so pseudo-counts may be of any size; -inf is a weight of exactly 0. `mask` is
    False at padding. As a posterior, exp(log_weight) are the pseudo-counts of a Dirichlet; `sample()` draws points with weights from it.
    """

    mean: Float[Tensor, "batch components dim"]
    log_variance: Float[Tensor, "batch components dim"] | None
    log_weight: Float[Tensor, "batch components"]
    mask: Bool[Tensor, "batch components"]

    @property
    def log_weight_or_zero(self) -> Float[Tensor, "batch components"]:
        """log weight, -inf at padding."""
        return self.log_weight.masked_fill(~self.mask, -math.inf)

    @property
    def weights(self) -> Float[Tensor, "batch components"]:
        """Weights that sum to one: those of the points, or their expectation under the Dirichlet."""
        return self.log_weight_or_zero.softmax(-1)

    @property
    def kept(self) -> Bool[Tensor, "batch components"]:
        """Which components are neither padding nor of weight 0."""
        return self.log_weight_or_zero > -math.inf

    def sample(self, kappa: int = 1, generator: torch.Generator | None = None) -> Mixture:
        """`kappa` weighted points from each component: w ~ Dir(α_i / κ, κ times each), z ~ N(mean_i, σ_i²).

        The weights are left as log Gamma draws: their normaliser cancels in every softmax, and a draw of one component
        does not depend on the others, so that a sequence may be drawn token by token.
        """
        copies = self if kappa == 1 else self._repeated(kappa)
        log_alpha = copies.log_weight - math.log(kappa)
        log_gamma = _log_gamma(log_alpha, generator).masked_fill(log_alpha == -math.inf, -math.inf)
        points = copies.mean
        if copies.log_variance is not None:
            noise = torch.empty_like(points).normal_(generator=generator)
            points = points + noise * (0.5 * copies.log_variance.clamp(*LOG_VARIANCE_RANGE)).exp()
        return Mixture(points, None, log_gamma, copies.mask)

    def append(self, other: Mixture) -> Mixture:
        """The components of both; both must be points, or both Gaussians."""
        if (self.log_variance is None) != (other.log_variance is None):
            raise ValueError(
                "Weighted points (of a pass that samples) cannot be joined with Gaussians (of one that does not): "
                "decode from beginning to end in one mode."
            )
        variances = (self.log_variance, other.log_variance)
        return Mixture(
            torch.cat([self.mean, other.mean], 1),
            None if variances[0] is None or variances[1] is None else torch.cat([variances[0], variances[1]], 1),
            torch.cat([self.log_weight, other.log_weight], 1),
            torch.cat([self.mask, other.mask], 1),
        )

    def interpolate(self, other: Mixture, tau: float) -> Mixture:
        """The components of both, with a share 1 - τ of the weight for these and τ for the others."""
        shares = ((self, 1.0 - tau), (other, tau))
        one, two = (
            Mixture(
                each.mean,
                each.log_variance,
                each.log_weight_or_zero.log_softmax(-1) + (math.log(share) if share > 0 else -math.inf),
                each.mask,
            )
            for each, share in shares
        )
        return one.append(two)

    def _repeated(self, kappa: int) -> Mixture:
        return Mixture(
            self.mean.repeat_interleave(kappa, 1),
            None if self.log_variance is None else self.log_variance.repeat_interleave(kappa, 1),
            self.log_weight.repeat_interleave(kappa, 1),
            self.mask.repeat_interleave(kappa, 1),
        )


def _log_gamma(log_alpha: Tensor, generator: torch.Generator | None) -> Tensor:
    """log X, X ~ Gamma(exp(log_alpha)), for log_alpha of any size.

    Beyond exp(16) the draw is log α + ε / sqrt(α), whose error, of order 1/α, float32 cannot show; there Gamma draws
    themselves would overflow.
    """
    drawn = log_gamma_rsample(log_alpha.clamp_max(_LARGE_LOG_ALPHA), generator)
    large = log_alpha.clamp_min(_LARGE_LOG_ALPHA)
    spread = torch.empty_like(large).normal_(generator=generator) * (-0.5 * large).exp()
    return torch.where(log_alpha > _LARGE_LOG_ALPHA, large + spread, drawn)
