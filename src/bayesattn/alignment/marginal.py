"""The exact marginal likelihood of a categorical alignment."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.alignment.base import Alignment, Objective
from bayesattn.alignment.mixture import CHUNK
from bayesattn.support import checks
from bayesattn.support.configurable import register


@register
class Marginal(Objective):
    """log Σ_i p_i f(y | memory_i), exactly: one call of the likelihood for each position of the source.

    Args:
        chunk: how many (choice, example, target token) the likelihood sees at once; see `ContextMixture`.
    """

    def __init__(self, chunk: int = CHUNK):
        super().__init__()
        self.chunk = checks.whole("chunk", chunk)

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        loss = -alignment.every(alignment.log_prior, self.chunk).log_probability(alignment.log_likelihood)
        return loss, torch.zeros_like(loss)
