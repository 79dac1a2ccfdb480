"""VTP: the encoder's vectors are pooled to one, which is a Gaussian."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from bayesattn.experiments.models.autoencoders.base import Vectors
from bayesattn.experiments.models.autoencoders.gaussian_vectors import GaussianVectors
from bayesattn.support import checks

Pooling = Literal["mean", "max"]


class GaussianPool(GaussianVectors):
    """One vector for the whole text, the mean or the maximum over its tokens."""

    def __init__(self, dim: int, pooling: Pooling = "mean", lambda_gaussian: float = 1e-3):
        super().__init__(dim, lambda_gaussian)
        self.pooling: Pooling = checks.one_of("pooling", pooling, ("mean", "max"))

    def forward(self, vectors: Tensor, padding: Tensor) -> Vectors:
        there = ~padding.unsqueeze(-1)
        mean = (vectors * there).sum(1) / there.sum(1)
        pooled = mean if self.pooling == "mean" else vectors.masked_fill(~there, -math.inf).amax(1)
        return self.latent(pooled.unsqueeze(1), self.kept(~padding))

    def sample_prior(self, lengths: Tensor, generator: torch.Generator | None = None) -> Vectors:
        return super().sample_prior(torch.ones_like(lengths), generator)

    def kept(self, there: Tensor) -> Tensor:
        return there[:, :1]
