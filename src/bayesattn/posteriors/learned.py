"""Positive quantities that a posterior learns for each layer: free parameters, or computed from the scores.

The thesis (Cinquin 2021) ties them to positions, so that a longest length must be given; the default here does not.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.numerics.positive import inverse_softplus, log_softplus
from bayesattn.numerics.precision import linear_in_dtype_of, to_compute
from bayesattn.posteriors.rows import DenseRows, Rows


def _scattered(shape: tuple[int, ...], start: float) -> nn.Parameter:
    """Raw values around `start`'s, spread as in the thesis: N(raw, 0.01²)."""
    return nn.Parameter(torch.empty(shape).normal_(inverse_softplus(start), 0.01))


def _positive(raw: Tensor, like: Tensor) -> Tensor:
    return F.softplus(to_compute(raw, like.dtype)).clamp_min(torch.finfo(like.dtype).tiny)


class LearnedPositive(nn.Module):
    """The softplus of something that is learned: a positive value for each pair, or each row; or the logarithm of it."""

    @abstractmethod
    def raw_values(self, scores: Tensor, rows: Rows) -> Tensor:
        """What the softplus is taken of, in the dtype of the scores."""

    def forward(self, scores: Tensor, rows: Rows) -> Tensor:
        return _positive(self.raw_values(scores, rows), scores)

    def log(self, scores: Tensor, rows: Rows) -> Tensor:
        """The logarithms, with gradients that stay finite however small the values."""
        return log_softplus(self.raw_values(scores, rows))


class PerHead(LearnedPositive):
    """One positive number for each head: [heads], broadcast against pairs (or rows)."""

    def __init__(self, num_heads: int, start: float):
        super().__init__()
        self.raw = _scattered((num_heads,), start)

    def raw_values(self, scores: Tensor, rows: Rows) -> Tensor:
        if scores.shape[1] != self.raw.shape[0]:
            raise ValueError(
                f"The posterior was bound with num_heads={self.raw.shape[0]}, the scores have {scores.shape[1]} heads: bind it again."
            )
        return rows.heads_to_pairs(to_compute(self.raw, scores.dtype))

    def values(self, like: Tensor) -> Tensor:
        """[heads], in the dtype of `like`."""
        return _positive(self.raw, like)

    def log_values(self, like: Tensor) -> Tensor:
        """Their logarithms."""
        return log_softplus(to_compute(self.raw, like.dtype))


class PerPosition(LearnedPositive):
    """The thesis's free parameters: one for each (query, key) position, or with `rows_only` one for each query position."""

    def __init__(self, num_heads: int, max_len: int, start: float, rows_only: bool):
        super().__init__()
        self.max_len = max_len
        self.raw = _scattered((num_heads, max_len, 1 if rows_only else max_len), start)

    def raw_values(self, scores: Tensor, rows: Rows) -> Tensor:
        query, key = _dense_lengths(scores, rows, self.max_len)
        return to_compute(self.raw[:, :query, :key], scores.dtype)

    def log_of_rows(self, queries: int, keys: Tensor) -> Tensor:
        """With `rows_only`: the logarithm for each query, [heads, query], in the dtype of the keys [batch, heads, key, features]."""
        _check_lengths(queries, keys.shape[-2], self.max_len)
        return log_softplus(to_compute(self.raw[:, :queries, 0], keys.dtype))


class FromEntry(LearnedPositive):
    """Data-dependent and free of any length (our own form): a network on each log weight and its row's statistics.

    Features of pair (i, j): log softmax(scores)_ij, the entropy of row i, the log of its number of keys. With `rows_only`,
    of row i: the sum of its squared weights, its entropy, the log of its number of keys.
    """

    def __init__(self, hidden: int, start: float, rows_only: bool):
        super().__init__()
        self.rows_only = rows_only
        self.inner = nn.Linear(3, hidden)
        self.outer = _near_constant(nn.Linear(hidden, 1), start)

    def raw_values(self, scores: Tensor, rows: Rows) -> Tensor:
        log_weights = rows.log_softmax(scores).clamp_min(-30.0)
        weights = log_weights.exp()
        entropy = -rows.sum(weights * log_weights)
        log_size = rows.sizes(scores).log()
        if self.rows_only:
            features = torch.broadcast_tensors(rows.sum(weights.square()), entropy, log_size)
        else:
            features = torch.broadcast_tensors(log_weights, rows.to_pairs(entropy), rows.to_pairs(log_size))
        return _two_layers(torch.stack(features, -1), self.inner, self.outer).squeeze(-1)


class FromRow(LearnedPositive):
    """Data-dependent as in the thesis: a network on the whole row of scores, masked entries 0, of width `max_len`."""

    def __init__(self, max_len: int, hidden: int, start: float, rows_only: bool):
        super().__init__()
        self.max_len = max_len
        self.inner = nn.Linear(max_len, hidden)
        self.outer = _near_constant(nn.Linear(hidden, 1 if rows_only else max_len), start)

    def raw_values(self, scores: Tensor, rows: Rows) -> Tensor:
        _, key = _dense_lengths(scores, rows, self.max_len)
        padded = F.pad(scores, (0, self.max_len - key))
        return _two_layers(padded, self.inner, self.outer)[..., :key]


def learned_positive(
    *, num_heads: int, start: float, max_len: int | None, data_dependent: bool, hidden: int, rows_only: bool
) -> LearnedPositive:
    """The module for these options: called with (scores, rows), it gives a positive value for each pair, or each row."""
    if data_dependent:
        if max_len is None:
            return FromEntry(hidden, start, rows_only)
        return FromRow(max_len, hidden, start, rows_only)
    if max_len is None:
        return PerHead(num_heads, start)
    return PerPosition(num_heads, max_len, start, rows_only)


def _near_constant(layer: nn.Linear, start: float) -> nn.Linear:
    """Small weights and a bias at the start value: the quantity starts near it for every input."""
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.constant_(layer.bias, inverse_softplus(start))
    return layer


def _two_layers(features: Tensor, inner: nn.Linear, outer: nn.Linear) -> Tensor:
    return linear_in_dtype_of(F.relu(linear_in_dtype_of(features, inner)), outer)


def _dense_lengths(scores: Tensor, rows: Rows, max_len: int) -> tuple[int, int]:
    if not isinstance(rows, DenseRows):
        raise ValueError("max_len= ties the parameters to positions, which a graph does not have: leave it None.")
    query, key = scores.shape[-2:]
    _check_lengths(query, key, max_len)
    return query, key


def _check_lengths(query: int, key: int, max_len: int) -> None:
    if max(query, key) > max_len:
        raise ValueError(
            f"Attention of {query} queries over {key} keys is longer than max_len={max_len}: give a larger max_len, or leave it None for "
            "parameters that depend on no length."
        )
