"""T: a transformer autoencoder without a bottleneck."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.experiments.models.autoencoders.base import Bottleneck, Vectors


class NoBottleneck(Bottleneck):
    """The decoder reads the encoder's vectors as they are."""

    def forward(self, vectors: Tensor, padding: Tensor) -> Vectors:
        return Vectors(vectors, ~padding)

    def sample_prior(self, lengths: Tensor, generator: torch.Generator | None = None) -> Vectors:
        raise ValueError("An autoencoder without a bottleneck has no prior to sample from: use vt, vtp, vts or nvae.")
