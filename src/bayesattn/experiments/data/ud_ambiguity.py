"""A larger ambiguity test than the thesis's 30 sentences: test sentences of UD English EWT, marked by the tags their words had in training.

A word is ambiguous if a second tag makes up at least RARER_TAG of its training occurrences. A sentence is ambiguous if a word of it is.
Sentences with a word that is not in the vocabulary are left out, as one such token stands for many words; so are short ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.experiments.data.ud_ewt import PAD, RARE, TAGS, TaggedSentences
from bayesattn.support.annotations import Shaped

RARER_TAG = 0.2
FEWEST_WORDS = 4


@dataclass(frozen=True)
class MarkedWords:
    """Which of some sentences are in the test, and which of their words are ambiguous (padding is not)."""

    chosen: Shaped[Tensor, " n"]
    ambiguous: Shaped[Tensor, "n length"]


def mark_ambiguous(tokens: Shaped[Tensor, "n length"], train: TaggedSentences) -> MarkedWords:
    """Mark the words of `tokens` by their tags in `train`."""
    size = int(max(tokens.max(), train.tokens.max())) + 1
    counts = torch.zeros(size, len(TAGS)).index_put((train.tokens, train.tags), torch.tensor(1.0), accumulate=True)
    second = counts.topk(2, dim=1).values[:, 1]
    of_words = second >= RARER_TAG * counts.sum(1).clamp_min(1)
    words = tokens != PAD
    known = ((tokens >= RARE) | ~words).all(1)
    return MarkedWords(known & (words.sum(1) >= FEWEST_WORDS), of_words[tokens] & words)
