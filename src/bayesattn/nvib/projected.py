"""Multi-head denoising attention to a latent, through the projections of any attention layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.numerics.precision import to_compute
from bayesattn.nvib.attention import Compat, attend_points, denoising_attention, key_bias
from bayesattn.nvib.layer import NVIB
from bayesattn.nvib.mixture import Mixture
from bayesattn.nvib.moments import Moments
from bayesattn.support.annotations import Float


class ReadsLatent:
    """An attention layer that turns what it attends to into the latent of an NVIB layer of its own."""

    nvib: NVIB | None
    moments: Moments | None
    """While it is set, attention is the ordinary one and the keys are measured; see `identity`."""


@dataclass(frozen=True)
class Projections:
    """The linear maps from the latent's vectors to the keys and values of all heads."""

    num_heads: int
    key_weight: Float[Tensor, "features dim"]
    key_bias: Float[Tensor, " features"] | None
    value_weight: Float[Tensor, "features dim"]
    value_bias: Float[Tensor, " features"] | None

    def attend(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        latent: Mixture,
        mask: Float[Tensor, "#batch #heads query components"] | None = None,
        *,
        dropout_p: float = 0.0,
        compat: Compat | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch heads query head_dim"], Float[Tensor, "batch heads query components"] | None]:
        """What each head reads, and on demand the components' weights, those without dropout."""
        if latent.log_variance is not None:
            return self._attend_in_latent_space(query, latent, mask, dropout_p, compat)
        output = self._attend_points(query, latent, mask, dropout_p)
        weights = self._attend_in_latent_space(query, latent, mask, 0.0, compat)[1] if need_weights else None
        return output, weights

    def _attend_points(self, query: Tensor, latent: Mixture, mask: Tensor | None, dropout_p: float) -> Tensor:
        """Points: project the points to keys and values, and attend with a bias on the keys."""
        points = latent.mean.to(self.key_weight.dtype)
        key = self._heads(F.linear(points, self.key_weight, self.key_bias))
        value = self._heads(F.linear(points, self.value_weight, self.value_bias))
        rounded = Mixture(points, None, latent.log_weight, latent.mask)
        return attend_points(query, key, value, key_bias(rounded, math.sqrt(query.shape[-1])), mask, dropout_p)

    def _attend_in_latent_space(
        self, query: Tensor, latent: Mixture, mask: Tensor | None, dropout_p: float, compat: Compat | None
    ) -> tuple[Tensor, Tensor]:
        """Gaussians: take the queries through the keys' projection into the latent's space, and the result through the values'."""
        head_dim = query.shape[-1]
        of_heads = (self.num_heads, head_dim, -1)
        with torch.autocast(query.device.type, enabled=False):
            # the key's bias is left out: it adds the same to all components
            u = to_compute(query) @ to_compute(self.key_weight).view(of_heads)
            mixed, weights = denoising_attention(u, latent, mask, head_dim=head_dim, compat=compat, dropout_p=dropout_p)
            output = mixed @ to_compute(self.value_weight).view(of_heads).transpose(-2, -1)
            if self.value_bias is not None:
                output = output + to_compute(self.value_bias).view(self.num_heads, 1, head_dim)
        return output.to(self.value_weight.dtype), weights

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def mask_of_components(
    mask: Float[Tensor, "#batch #heads query tokens"], latent: Mixture, has_prior: bool
) -> Float[Tensor, "#batch #heads query components"]:
    """An additive mask of tokens as one of components: the prior visible, each token's κ points alike."""
    mask = F.pad(mask, (int(has_prior), 0))
    components = latent.mask.shape[1]
    return mask if components == mask.shape[-1] else mask.repeat_interleave(components // mask.shape[-1], -1)
