"""Rows: which keys each query may attend to, and the sums that every posterior needs over them.

A *row* is the set of keys of one query. A posterior is written against this interface and never sees how the pairs
are stored, so that it works on dense attention and, with another kind of rows, on the edges of a graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from bayesattn.support.annotations import Bool, Float, Int


class Rows(ABC):
    """Pairs (query, key) grouped by query.

    Three kinds of tensor go in and out: *pairs* (one value for each pair), *rows* (one for each query, shaped so
    that it broadcasts against pairs after `to_pairs`) and *examples* (one for each example of the batch).
    Values at masked pairs never matter, as long as they are finite.
    """

    @abstractmethod
    def sum(self, pairs: Tensor) -> Tensor:
        """Pairs → rows: the sum over the keys a query may attend to."""

    @abstractmethod
    def softmax(self, pairs: Tensor) -> Tensor:
        """Pairs → pairs: weights that sum to one in each row; exactly 0 where masked; a row of zeros where nothing is allowed."""

    @abstractmethod
    def log_softmax(self, pairs: Tensor) -> Tensor:
        """Pairs → pairs: log weights; 0 where masked."""

    @abstractmethod
    def to_pairs(self, rows: Tensor) -> Tensor:
        """Rows → something that broadcasts against pairs."""

    @abstractmethod
    def keys_to_pairs(self, keys: Tensor) -> Tensor:
        """One value for each key (and head) → something that broadcasts against pairs."""

    @abstractmethod
    def log_softmax_of_all_keys(self, keys: Tensor) -> Tensor:
        """One value for each key (and head) → its log softmax over all keys of the example, of the same shape."""

    @abstractmethod
    def heads_to_pairs(self, heads: Float[Tensor, " heads"]) -> Tensor:
        """One value for each head → something that broadcasts against pairs."""

    @abstractmethod
    def sizes(self, like: Tensor) -> Tensor:
        """Rows: how many keys each query may attend to, at least 1, in the dtype of `like`."""

    @abstractmethod
    def total_of_pairs(self, pairs: Tensor) -> Float[Tensor, " batch"]:
        """Pairs → examples: the sum over the pairs that count."""

    @abstractmethod
    def total_of_rows(self, rows: Tensor) -> Float[Tensor, " batch"]:
        """Rows → examples: the sum over the rows that count and are not empty."""


class DenseRows(Rows):
    """The rows of ordinary attention: pairs are [batch, heads, query, key], rows [batch, heads, query, 1].

    `allowed` (broadcastable to pairs, True = may attend) says which keys each query has. `counted` (one flag for
    each query) leaves padded queries out of every total: they still get an output, but no KL.
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        allowed: Bool[Tensor, "#batch #heads #query #key"] | None = None,
        counted: Bool[Tensor, "batch query"] | None = None,
    ):
        self.shape = shape
        self.allowed = allowed
        self.counted = counted
        self.blocked = None if allowed is None else ~allowed

    def fill_blocked(self, pairs: Tensor, value: float) -> Tensor:
        """Pairs with `value` at every masked place."""
        return pairs if self.blocked is None else pairs.masked_fill(self.blocked, value)

    def sum(self, pairs: Tensor) -> Tensor:
        return self.fill_blocked(pairs, 0.0).sum(-1, keepdim=True)

    def softmax(self, pairs: Tensor) -> Tensor:
        lowest = torch.finfo(pairs.dtype).min  # not -inf: a fully masked row would be NaN, here it is set to 0 below
        return self.fill_blocked(self.fill_blocked(pairs, lowest).softmax(-1), 0.0)

    def log_softmax(self, pairs: Tensor) -> Tensor:
        lowest = torch.finfo(pairs.dtype).min
        return self.fill_blocked(self.fill_blocked(pairs, lowest).log_softmax(-1), 0.0)

    def to_pairs(self, rows: Tensor) -> Tensor:
        return rows

    def keys_to_pairs(self, keys: Tensor) -> Tensor:
        return keys.unsqueeze(-2)

    def log_softmax_of_all_keys(self, keys: Tensor) -> Tensor:
        if self.allowed is None:
            return keys.log_softmax(-1)
        reached = self.allowed.any(-2)  # a padded key belongs to no query
        lowest = torch.finfo(keys.dtype).min
        return keys.masked_fill(~reached, lowest).log_softmax(-1).masked_fill(~reached, 0.0)

    def heads_to_pairs(self, heads: Tensor) -> Tensor:
        return heads.view(-1, 1, 1)

    def sizes(self, like: Tensor) -> Tensor:
        if self.allowed is None:
            return torch.full((1, 1, 1, 1), float(self.shape[-1]), dtype=like.dtype, device=like.device)
        keys = self.allowed.expand(*self.allowed.shape[:-1], self.shape[-1])
        return keys.sum(-1, keepdim=True).clamp_min(1).to(like.dtype)

    def total_of_pairs(self, pairs: Tensor) -> Tensor:
        return self._total(self.sum(pairs.expand(self.shape)))

    def total_of_rows(self, rows: Tensor) -> Tensor:
        rows = rows.expand(*self.shape[:-1], 1)
        if self.allowed is not None:
            rows = rows.masked_fill(~self.allowed.any(-1, keepdim=True), 0.0)
        return self._total(rows)

    def _total(self, rows: Tensor) -> Tensor:
        if self.counted is not None:
            rows = rows.masked_fill(~self.counted[:, None, :, None], 0.0)
        return rows.flatten(1).sum(1)


class EdgeRows(Rows):
    """The rows of attention on a graph: pairs are [edges, heads], rows [queries, heads], and memory is linear in the edges.

    Edge e lets query `query[e]` attend to key `key[e]`: a row is a node's neighbourhood. Every edge is a pair that counts.
    `example` (one index for each query) says which example a query belongs to; without it the whole graph is one.
    """

    def __init__(
        self,
        query: Int[Tensor, " edges"],
        key: Int[Tensor, " edges"],
        num_queries: int,
        num_heads: int,
        example: Int[Tensor, " queries"] | None = None,
        num_examples: int = 1,
    ):
        self.query = query
        self.key = key
        self.shape = (num_queries, num_heads)
        self.example = example
        self.num_examples = num_examples
        self.degrees = torch.bincount(query, minlength=num_queries)
        # to look costs nothing on a processor alone: elsewhere it would wait for the device, and break a compiled graph
        may_look = query.device.type == "cpu" and not torch.compiler.is_compiling()
        self.is_sorted = may_look and bool((query[1:] >= query[:-1]).all())

    def sum(self, pairs: Tensor) -> Tensor:
        pairs = pairs.expand(len(self.query), self.shape[1])
        return pairs.new_zeros(self.shape).index_add(0, self.query, pairs)

    def softmax(self, pairs: Tensor) -> Tensor:
        weights = self._shifted(pairs).exp()
        return weights / self.to_pairs(self.sum(weights))

    def log_softmax(self, pairs: Tensor) -> Tensor:
        shifted = self._shifted(pairs)
        return shifted - self.to_pairs(self.sum(shifted.exp())).log()

    def to_pairs(self, rows: Tensor) -> Tensor:
        return rows if rows.dim() == 0 or rows.shape[0] == 1 else rows.index_select(0, self.query)

    def keys_to_pairs(self, keys: Tensor) -> Tensor:
        return keys.index_select(0, self.key)

    def log_softmax_of_all_keys(self, keys: Tensor) -> Tensor:
        if self.example is not None:
            raise ValueError(
                "A contextual prior over='all' shares its mass among all nodes of one graph; this batch has several: use over='row'."
            )
        return keys.log_softmax(0)

    def heads_to_pairs(self, heads: Tensor) -> Tensor:
        return heads.view(1, -1)

    def sizes(self, like: Tensor) -> Tensor:
        return self.degrees.clamp_min(1).to(like.dtype).unsqueeze(-1)

    def total_of_pairs(self, pairs: Tensor) -> Tensor:
        if self.example is None:
            return pairs.expand(len(self.query), self.shape[1]).sum().view(1)
        return self._total(self.sum(pairs))

    def total_of_rows(self, rows: Tensor) -> Tensor:
        return self._total(rows.expand(self.shape).masked_fill((self.degrees == 0).unsqueeze(-1), 0.0))

    def _shifted(self, pairs: Tensor) -> Tensor:
        """Pairs less the largest of their row, which the softmax does not see and exp cannot overflow on."""
        pairs = pairs.expand(len(self.query), self.shape[1])
        return pairs - self.to_pairs(self._largest(pairs.detach()))

    def _largest(self, pairs: Tensor) -> Tensor:
        """Pairs → rows; the lowest number where there is no pair."""
        lowest = torch.finfo(pairs.dtype).min
        if self.is_sorted:  # several times faster
            return torch.segment_reduce(pairs.contiguous(), "max", lengths=self.degrees, initial=lowest)
        index = self.query.unsqueeze(-1).expand_as(pairs)
        return pairs.new_full(self.shape, lowest).scatter_reduce(0, index, pairs, "amax")

    def _total(self, rows: Tensor) -> Tensor:
        per_query = rows.sum(1)
        if self.example is None:
            return per_query.sum(0, keepdim=True)
        return per_query.new_zeros(self.num_examples).index_add(0, self.example, per_query)
