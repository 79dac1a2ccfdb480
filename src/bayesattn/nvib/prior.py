"""The prior of an NVIB layer: a base Gaussian and a pseudo-count, as buffers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayesattn.numerics.precision import compute_dtype, to_compute
from bayesattn.nvib.mixture import Mixture
from bayesattn.support.annotations import Float


class ComponentPrior(nn.Module):
    """N(mean, exp(log_variance)) with pseudo-count exp(log_alpha).

    `log_alpha_spread`, the unit of τ_α, is the standard deviation of ‖x‖² / 2 sqrt(d) over data, at least 1, once `identity` measured it.
    """

    mean: Tensor
    log_variance: Tensor
    log_alpha: Tensor
    log_alpha_spread: Tensor

    def __init__(self, dim: int, mean: float, variance: float, alpha: float):
        super().__init__()
        self.register_buffer("mean", torch.full((dim,), mean))
        self.register_buffer("log_variance", torch.full((dim,), math.log(variance)))
        self.register_buffer("log_alpha", torch.tensor(math.log(alpha)))
        self.register_buffer("log_alpha_spread", torch.tensor(1.0))

    def component(self, x: Float[Tensor, "batch tokens dim"]) -> Mixture:
        """The component that the prior adds to the mixture of each example of `x`."""
        dtype, batch = compute_dtype(x.dtype), x.shape[0]
        return Mixture(
            self.mean.to(dtype).expand(batch, 1, -1),
            self.log_variance.to(dtype).expand(batch, 1, -1),
            self.log_alpha.to(dtype).expand(batch, 1),
            torch.ones(batch, 1, dtype=torch.bool, device=x.device),
        )

    def sample(self, lengths: Tensor, delta: float, kappa: int, generator: torch.Generator | None) -> Mixture:
        """N = length + 1 components for each example, all alike, with (α_p + δ length) / N pseudo-counts; κ points from each."""
        count = lengths.to(self.mean.device) + 1
        components = int(count.max())
        mask = torch.arange(components, device=count.device) < count[:, None]
        mean, log_variance = to_compute(self.mean), to_compute(self.log_variance)
        count = count.to(mean.dtype)
        per_component = conditional_log_alpha(to_compute(self.log_alpha), delta, count) - count.log()
        shape = (len(count), components, -1)
        alike = Mixture(
            mean.expand(shape),
            log_variance.expand(shape),
            per_component[:, None].expand(mask.shape),
            mask,
        )
        return alike.sample(kappa, generator)


def conditional_log_alpha(
    log_alpha: Float[Tensor, ""], delta: float, count: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """log(α_p + δ (N - 1)): the pseudo-count of the prior of a sequence of N components, its own among them."""
    return torch.logaddexp(log_alpha.to(count.dtype), (delta * (count - 1.0)).log())
