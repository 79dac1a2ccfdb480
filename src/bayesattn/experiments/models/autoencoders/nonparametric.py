"""NVAE: the nonparametric variational autoencoder of Henderson and Fehr (ICLR 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.experiments.models.autoencoders.base import Bottleneck
from bayesattn.nvib import NVIB, DenoisingMultiheadAttention, Mixture
from bayesattn.nvib.layer import AlphaForm


class NonparametricBottleneck(Bottleneck):
    """An NVIB layer, read by denoising attention: how many vectors a text keeps is learned, text by text.

    Args:
        dim: of the vectors.
        num_heads: of the decoder's attention.
        delta: α^Δ, the pseudo-count that the prior has for each token: the larger, the more vectors are kept.
        alpha, kappa, lambda_dirichlet, lambda_gaussian: see `NVIB`.

    Pseudo-counts start around 1, so that training begins with every vector kept.
    """

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int = 1,
        delta: float = 0.3,
        alpha: AlphaForm = "relu",
        kappa: int = 1,
        lambda_dirichlet: float = 1.0,
        lambda_gaussian: float = 1e-3,
    ):
        super().__init__()
        self.nvib = NVIB(
            dim,
            num_heads=num_heads,
            alpha=alpha,
            kappa=kappa,
            delta=delta,
            lambda_dirichlet=lambda_dirichlet,
            lambda_gaussian=lambda_gaussian,
        )
        if alpha == "relu":
            nn.init.constant_(self.nvib.log_alpha.bias, 1.0)

    def forward(self, vectors: Tensor, padding: Tensor) -> Mixture:
        return self.nvib(vectors, padding)

    def sample_prior(self, lengths: Tensor, generator: torch.Generator | None = None) -> Mixture:
        return self.nvib.sample_prior(lengths, generator)

    def attention(self, dim: int, heads: int, dropout: float) -> nn.MultiheadAttention:
        return DenoisingMultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
