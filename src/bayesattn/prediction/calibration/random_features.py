"""A Gaussian process of features, by random Fourier features (SNGP, Liu et al. 2020): its variance grows away from the training data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.support.annotations import Float

SPREAD = 1.4
"""Standard deviation of the phases, what SNGP's 0.05 is for BERT's 768 features: a length scale of √features / 1.4."""


@dataclass(frozen=True)
class RandomFeatures:
    """φ(h) = √(2 / D) cos(W LN(h) + b), with W and b drawn once: φ(h)·φ(h') is near a Gaussian kernel of the normalised features."""

    weight: Float[Tensor, "random features"]
    phase: Float[Tensor, " random"]

    @staticmethod
    def drawn(features: int, count: int, seed: int = 0) -> RandomFeatures:
        """`count` of them for so many features."""
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(count, features, generator=generator) * (SPREAD / math.sqrt(features))
        return RandomFeatures(weight, 2 * math.pi * torch.rand(count, generator=generator))

    def __call__(self, features: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape random"]:
        normalised = F.layer_norm(features, features.shape[-1:])
        angles = F.linear(normalised, self.weight.to(features), self.phase.to(features))
        return angles.cos() * math.sqrt(2.0 / len(self.phase))


class PrecisionSums:
    """P = r I + Σ φ φ^T over the training data, exactly, in one pass."""

    def __init__(self, random: RandomFeatures, ridge: float = 1e-3):
        self.random = random
        self.ridge = ridge
        size = len(random.phase)
        self.products = torch.zeros(size, size, dtype=torch.float64)

    def add(self, features: Float[Tensor, "rows features"]) -> None:
        """Count these rows in."""
        rows = self.random(features.float()).cpu()
        self.products += (rows.T @ rows).double()  # a batch in float32, the sum of batches in float64

    def fitted(self) -> ProcessVariance:
        """The variance after what was counted."""
        precision = self.products + self.ridge * torch.eye(len(self.products), dtype=torch.float64)
        root = torch.linalg.cholesky(precision)
        return ProcessVariance(self.random.weight, self.random.phase, root, self.ridge)


@dataclass(frozen=True)
class ProcessVariance:
    """The posterior variance r φ^T P^-1 φ: near 1 far from all training data, near 0 among them."""

    weight: Float[Tensor, "random features"]
    phase: Float[Tensor, " random"]
    root: Float[Tensor, "random random"]
    """L with L L^T = P."""
    ridge: float

    def __call__(self, features: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape"]:
        rows = RandomFeatures(self.weight, self.phase)(features.flatten(0, -2).float()).double()
        solved = torch.linalg.solve_triangular(self.root.to(rows.device), rows.T, upper=False)
        return (self.ridge * solved.square().sum(0)).view(features.shape[:-1])
