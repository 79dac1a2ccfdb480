"""The trigram model: a distribution, Kneser-Ney's by hand, and better on what it has seen."""

from __future__ import annotations

import math

import pytest
import torch

from bayesattn.experiments.models.trigram import Trigram

TEXTS = torch.tensor([[4, 5, 3, 0], [4, 6, 3, 0], [4, 5, 7, 3]])


def test_every_context_has_a_distribution() -> None:
    model = Trigram(TEXTS, 9)
    for context in ([4, 5], [5, 7], [8, 8], [4, 8]):
        last = torch.tensor([[*context, word] for word in range(1, 9)])
        words_but_padding = model.log_prob(last)[:, 2].exp().sum()
        # padding never follows anything, but the lowest order leaves it its share of 1 / vocabulary
        assert 0.8 < words_but_padding < 1.0
    first, second, third = torch.full((9,), 4), torch.full((9,), 5), torch.arange(9)
    key = model._key(first, second, third)
    below = torch.full((9,), 1 / 9, dtype=torch.float64)
    for order, power in zip(reversed(model._orders), (1, 2, 3), strict=True):
        below = order.interpolated(key % 9**power, below)
        assert below.sum().item() == pytest.approx(1.0)


def test_one_probability_by_hand() -> None:
    """p(5 | start start 4 → after 4 at the second place): trigrams 0 4 5 twice, 0 4 6 once."""
    model = Trigram(TEXTS, 9)
    # trigram counts: 004:3 045:2 046:1 453:1 457:1 463:1 573:1; n1 = 5, n2 = 1
    d3 = 5 / 7
    # kinds of first words: 04:1 45:1 46:1 53:1 57:1 63:1 73:1; all once: n2 = 0, so D = 0.75
    d2 = 0.75
    # kinds of words before: 4:1 5:1 6:1 3:3 7:1; n1 = 4, n2 = 0
    d1 = 0.75
    unigram = (1 - d1) / 7 + d1 * 5 / 7 / 9
    bigram = (1 - d2) / 2 + d2 * 2 / 2 * unigram
    trigram = (2 - d3) / 3 + d3 * 2 / 3 * bigram
    assert model.log_prob(torch.tensor([[4, 5]]))[0, 1].exp().item() == pytest.approx(trigram, rel=1e-9)


def test_perplexity_counts_tokens_and_not_padding() -> None:
    model = Trigram(TEXTS, 9)
    log_prob = model.log_prob(TEXTS[:1])
    assert log_prob[0, 3] == 0
    assert model.perplexity(TEXTS[:1]) == pytest.approx(math.exp(-log_prob.sum().item() / 3))
    assert model.perplexity(TEXTS) < 3 < model.perplexity(TEXTS.flip(1).clamp_min(1))


def test_messages() -> None:
    with pytest.raises(ValueError, match="tokens below vocabulary=5"):
        Trigram(TEXTS, 5)
