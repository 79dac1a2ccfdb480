"""A model whose one attention layer runs three times."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import bayesattn as ba


class Shared(nn.Module):
    """One attention layer, run three times, as in ALBERT."""

    def __init__(self, posterior: ba.Posterior) -> None:
        super().__init__()
        self.attention = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=posterior)

    def forward(self, x: torch.Tensor, recompute: bool = False) -> torch.Tensor:
        for _ in range(3):
            x = x + (checkpoint(self._step, x, use_reentrant=False) if recompute else self._step(x))
        return x

    def _step(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def shared() -> Shared:
    """With a posterior and a prior that have parameters."""
    return Shared(ba.Weibull(3.0, ba.ContextualGamma(0.5, 3)))
