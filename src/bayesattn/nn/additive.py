"""Additive (Bahdanau) attention with random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.attention import attend_scores
from bayesattn.posteriors import Posterior, Softmax
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float


class AdditiveAttention(nn.Module):
    """score_ij = v · tanh(W_q query_i + W_k key_j + b), one head, with any posterior.

    Args:
        query_dim, key_dim: features of queries and keys.
        hidden_dim: width of the tanh layer; the projected keys, of this width, are what a contextual prior sees.
        posterior: distribution of the weights, `Softmax()` by default.
        dropout: dropout of the normalised weights in training.

    >>> import torch, bayesattn as ba
    >>> attention = ba.nn.AdditiveAttention(8, 12, 16, posterior=ba.Weibull(k=5.0))
    >>> context, weights = attention(torch.randn(2, 3, 8), torch.randn(2, 7, 12))
    >>> context.shape, weights.shape
    (torch.Size([2, 3, 12]), torch.Size([2, 3, 7]))
    """

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden_dim: int,
        posterior: Posterior | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        for name, size in (("query_dim", query_dim), ("key_dim", key_dim), ("hidden_dim", hidden_dim)):
            checks.whole(name, size)
        self.dropout = checks.fraction("dropout", dropout)
        self.query_projection = nn.Linear(query_dim, hidden_dim)
        self.key_projection = nn.Linear(key_dim, hidden_dim, bias=False)
        self.score = nn.Linear(hidden_dim, 1, bias=False)
        self.posterior = (posterior or Softmax()).bind(num_heads=1, head_dim=hidden_dim)

    def forward(
        self,
        query: Float[Tensor, "batch query query_dim"],
        key: Float[Tensor, "batch key key_dim"],
        value: Float[Tensor, "batch key value_dim"] | None = None,
        attn_mask: Tensor | None = None,
        query_mask: Bool[Tensor, "batch query"] | None = None,
    ) -> tuple[Float[Tensor, "batch query value_dim"], Float[Tensor, "batch query key"]]:
        """The values' average for each query (`value` defaults to `key`), and the weights as drawn.

        `attn_mask` is [batch, key] or broadcastable to [batch, query, key]: True = may attend, or float, added to the scores.
        """
        projected_key = self.key_projection(key)
        hidden = torch.tanh(self.query_projection(query).unsqueeze(2) + projected_key.unsqueeze(1))
        scores = self.score(hidden).squeeze(-1).unsqueeze(1)
        if attn_mask is not None:
            attn_mask = attn_mask[:, None, None, :] if attn_mask.dim() == 2 else attn_mask.unsqueeze(1)
        values = key if value is None else value
        context, weights = attend_scores(
            scores,
            projected_key.unsqueeze(1),
            values.unsqueeze(1),
            self.posterior,
            attn_mask,
            dropout_p=self.dropout if self.training else 0.0,
            query_mask=query_mask,
        )
        return context.squeeze(1), weights.squeeze(1)
