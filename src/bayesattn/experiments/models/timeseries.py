"""A causal transformer that predicts the next value of a series as a Gaussian."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.support import checks
from bayesattn.support.annotations import Float


class TimeSeriesTransformer(nn.Module):
    """Values → linear embedding + learned positions → causal transformer (GELU) → mean and standard deviation of the next value.

    >>> import torch
    >>> mean, scale = TimeSeriesTransformer(max_len=24)(torch.randn(3, 24))
    >>> mean.shape, scale.shape
    (torch.Size([3, 24]), torch.Size([3, 24]))
    """

    smallest_scale = 1e-3
    """Added to every standard deviation: a density that cannot run away on one lucky value."""

    def __init__(
        self,
        max_len: int,
        dim: int = 64,
        depth: int = 1,
        heads: int = 1,
        feedforward: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.max_len = checks.whole("max_len", max_len)
        self.embedding = nn.Linear(1, dim)
        self.positions = nn.Parameter(torch.randn(1, max_len, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, feedforward or 4 * dim, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, 2)
        self.register_buffer("future", torch.ones(max_len, max_len, dtype=torch.bool).triu(1), persistent=False)
        self.future: Tensor

    def forward(
        self, values: Float[Tensor, "batch time"]
    ) -> tuple[Float[Tensor, "batch time"], Float[Tensor, "batch time"]]:
        length = values.shape[1]
        if length > self.max_len:
            raise ValueError(f"A series of {length} values is longer than max_len={self.max_len}.")
        hidden = self.embedding(values.unsqueeze(-1)) + self.positions[:, :length]
        hidden = self.encoder(hidden, mask=self.future[:length, :length], is_causal=True)
        mean, raw_scale = self.head(hidden).unbind(-1)
        return mean, F.softplus(raw_scale) + self.smallest_scale
