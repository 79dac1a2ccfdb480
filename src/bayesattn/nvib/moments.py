"""What the keys of an attention layer look like over data: the empirical prior of an NVIB layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesattn.numerics.precision import to_compute
from bayesattn.nvib.mixture import Mixture
from bayesattn.nvib.prior import ComponentPrior
from bayesattn.support.annotations import Bool, Float


class Moments:
    """Mean and variance of the keys, dimension by dimension, and of ‖x‖² / 2 sqrt(d), over all tokens seen; in float64."""

    def __init__(self) -> None:
        self.count = 0
        self._first: Tensor | None = None
        self._second: Tensor | None = None

    def observe(
        self, key: Float[Tensor, "batch tokens dim"], padding: Bool[Tensor, "batch tokens"] | None, head_dim: int
    ) -> Mixture:
        """Count these keys, and give the mixture with which denoising attention is ordinary attention to them."""
        points = to_compute(key)
        log_alpha = points.square().sum(-1) / (2.0 * math.sqrt(head_dim))
        mask = torch.ones_like(log_alpha, dtype=torch.bool) if padding is None else ~padding
        seen = torch.cat([points, log_alpha.unsqueeze(-1)], -1)[mask].double()
        if self._first is None or self._second is None:
            self._first = self._second = seen.new_zeros(seen.shape[-1])
        self.count += len(seen)
        self._first = self._first + seen.sum(0)
        self._second = self._second + seen.square().sum(0)
        return Mixture(points, None, log_alpha, mask)

    @torch.no_grad()
    def to_prior(self, prior: ComponentPrior) -> None:
        """Write what was seen into the buffers of an NVIB layer's prior."""
        if self._first is None or self._second is None or self.count < 2:
            raise ValueError(f"An empirical prior needs at least 2 tokens, {self.count} were seen: give more batches.")
        mean = self._first / self.count
        variance = (self._second / self.count - mean.square()).clamp_min(1e-12)
        prior.mean.copy_(mean[:-1])
        prior.log_variance.copy_(variance[:-1].log())
        prior.log_alpha.copy_(mean[-1])
        # after a layer norm every vector has one length: a spread of 0 would take all effect from τ_α
        prior.log_alpha_spread.copy_(variance[-1].sqrt().clamp_min(1.0))
