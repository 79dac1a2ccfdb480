"""A trigram language model with interpolated Kneser-Ney smoothing: how fluent a text is, without a network."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.support import checks
from bayesattn.support.annotations import Float, Int

_START = 0
"""What stands twice before every text; padding never occurs inside one, so its id is free."""


class Trigram:
    """p(w | u, v) of tokens, from texts that are padded with 0 and hold their ends.

        p(w | u v) = max(c(u v w) - D, 0) / c(u v ·) + D N(u v ·) / c(u v ·) p(w | v)

    where N(u v ·) counts the different words after u v; p(w | v) and p(w) are formed in the same way from the number of different words
    before, and below them all words are alike. D = n1 / (n1 + 2 n2) for each order, with n1 and n2 the n-grams seen once and twice.

    >>> import torch
    >>> model = Trigram(torch.tensor([[4, 5, 3], [4, 6, 3]]), vocabulary=8)
    >>> model.log_prob(torch.tensor([[4, 5, 3]])).exp()[0, 0].item() > 0.5
    True
    """

    def __init__(self, texts: Int[Tensor, "texts length"], vocabulary: int):
        self.vocabulary = checks.whole("vocabulary", vocabulary)
        if len(texts) == 0 or int(texts.max()) >= vocabulary:
            raise ValueError(f"texts must hold tokens below vocabulary={vocabulary}, got {len(texts)} texts.")
        first, second, third, there = _trigrams(texts)
        keys = self._key(first, second, third)[there]
        trigrams, counts = keys.unique(return_counts=True)
        self._orders = [_Order(trigrams, counts, vocabulary)]
        for divisor in (vocabulary**2, vocabulary):  # forget the first word, then the second: count how many there were
            shorter, kinds = (trigrams % divisor).unique(return_counts=True)
            self._orders.append(_Order(shorter, kinds, vocabulary))
            trigrams = shorter

    def log_prob(self, texts: Int[Tensor, "texts length"]) -> Float[Tensor, "texts length"]:
        """log p of every token after the two before it; 0 at padding."""
        first, second, third, there = _trigrams(texts)
        key = self._key(first, second, third)
        probability = torch.full(texts.shape, 1.0 / self.vocabulary, dtype=torch.float64)
        for order, divisor in zip(reversed(self._orders), (1, 2, 3), strict=True):
            probability = order.interpolated(key % self.vocabulary**divisor, probability)
        return probability.log().masked_fill(~there, 0.0)

    def perplexity(self, texts: Int[Tensor, "texts length"]) -> float:
        """exp of the mean negative log p of a token."""
        return (-self.log_prob(texts).sum() / (texts != 0).sum()).exp().item()

    def _key(self, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
        return (first * self.vocabulary + second) * self.vocabulary + third


class _Order:
    """Counts of the n-grams of one length, found by binary search: a context is an n-gram's key without its last word."""

    def __init__(self, keys: Tensor, counts: Tensor, vocabulary: int):
        self.vocabulary = vocabulary
        once, twice = int((counts == 1).sum()), int((counts == 2).sum())
        self.discount = once / (once + 2 * twice) if once and twice else 0.75
        self.keys, self.counts = keys, counts.double()
        self.contexts, place = (keys // vocabulary).unique(return_inverse=True)
        totals = torch.zeros(len(self.contexts), dtype=torch.float64)
        self.totals = totals.index_add(0, place, self.counts)
        self.kinds = totals.index_add(0, place, torch.ones_like(self.counts))

    def interpolated(self, key: Tensor, below: Tensor) -> Tensor:
        """p of the last word of each n-gram, with p of one word fewer as what it falls back to."""
        count = _found(self.keys, self.counts, key)
        context = key // self.vocabulary
        total, kinds = _found(self.contexts, self.totals, context), _found(self.contexts, self.kinds, context)
        seen = ((count - self.discount).clamp_min(0.0) + self.discount * kinds * below) / total.clamp_min(1.0)
        return torch.where(total > 0, seen, below)


def _found(keys: Tensor, values: Tensor, wanted: Tensor) -> Tensor:
    """The value of each wanted key, 0 where it is not among `keys`, which are sorted."""
    place = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    return torch.where(keys[place] == wanted, values[place], 0.0)


def _trigrams(texts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each token with the two before it, and whether it is one."""
    before = torch.full((len(texts), 2), _START)
    whole = torch.cat([before, texts.long().cpu()], 1)
    return whole[:, :-2], whole[:, 1:-1], whole[:, 2:], whole[:, 2:] != 0
