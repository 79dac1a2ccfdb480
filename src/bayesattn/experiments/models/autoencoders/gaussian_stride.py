"""VTS: as VT, but vectors at fixed places are dropped."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesattn.experiments.models.autoencoders.base import Vectors
from bayesattn.experiments.models.autoencoders.gaussian_vectors import GaussianVectors
from bayesattn.support.annotations import Bool


class GaussianStride(GaussianVectors):
    """Of every text the same places are kept. About a share `dropped` of the vectors goes: up to 0.5 each ⌊1/p⌋-th one; above it all
    but each ⌊1/(1-p)⌋-th one; at 1 all but the first.
    """

    def __init__(self, dim: int, dropped: float = 0.5, lambda_gaussian: float = 1e-3):
        super().__init__(dim, lambda_gaussian)
        if not 0 <= dropped <= 1:
            raise ValueError(f"dropped must lie in [0, 1], got {dropped!r}: it is the share of vectors that goes.")
        self.dropped = dropped

    def forward(self, vectors: Tensor, padding: Tensor) -> Vectors:
        return self.latent(vectors, self.kept(~padding))

    def kept(self, there: Bool[Tensor, "batch tokens"]) -> Bool[Tensor, "batch tokens"]:
        places = torch.arange(there.shape[1], device=there.device)
        if self.dropped == 0:
            return there
        if self.dropped == 1:
            return there & (places == 0)
        if self.dropped <= 0.5:
            return there & ((places + 1) % _stride(self.dropped) != 0)
        return there & (places % _stride(1.0 - self.dropped) == 0)


def _stride(share: float) -> int:
    return math.floor(1.0 / share + 1e-9)  # 1 / (1 - 0.9) is a little more than 10, others a little less
