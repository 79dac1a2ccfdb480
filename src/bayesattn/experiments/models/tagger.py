"""A transformer encoder that gives every word of a sentence a tag."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.support import checks
from bayesattn.support.annotations import Float, Shaped


class Tagger(nn.Module):
    """Token ids → embedding + learned positions → transformer encoder (GELU) → logits of every position's tag.

    Token 0 is padding: no word attends to it. It gets a tag of its own all the same.

    >>> import torch
    >>> Tagger(vocabulary=50, tags=17, max_len=40)(torch.tensor([[3, 4, 5, 0]])).shape
    torch.Size([1, 4, 17])
    """

    def __init__(
        self,
        vocabulary: int,
        tags: int,
        max_len: int,
        dim: int = 32,
        depth: int = 1,
        heads: int = 1,
        feedforward: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.max_len = checks.whole("max_len", max_len)
        self.embedding = nn.Embedding(vocabulary, dim)
        self.positions = nn.Parameter(torch.randn(1, max_len, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, feedforward or 4 * dim, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, tags)

    def forward(self, tokens: Shaped[Tensor, "batch length"]) -> Float[Tensor, "batch length tags"]:
        length = tokens.shape[1]
        if length > self.max_len:
            raise ValueError(f"A sentence of {length} tokens is longer than max_len={self.max_len}.")
        hidden = self.embedding(tokens) + self.positions[:, :length]
        return self.head(self.encoder(hidden, src_key_padding_mask=tokens == 0))
