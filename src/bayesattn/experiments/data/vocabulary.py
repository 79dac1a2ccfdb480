"""Words ↔ numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from bayesattn.experiments.data.subwords import BEGIN, END, SPECIAL, UNKNOWN
from bayesattn.support import checks


def words_of(text: str) -> list[str]:
    """The words of a question or caption, in lower case, without punctuation; hyphens and slashes part words.

    >>> words_of("What's on the two-seat sofa?")
    ['whats', 'on', 'the', 'two', 'seat', 'sofa']
    """
    return re.sub(r"[-/]", " ", re.sub(r"[.,'!?\"()*#:;`]", "", text.lower())).split()


class Vocabulary:
    """The words that were seen often enough; all others are one word, UNKNOWN.

    >>> vocabulary = Vocabulary.of([["a", "dog"], ["a", "cat"]], least=2)
    >>> vocabulary.encode(["a", "cat"]), vocabulary.decode([4])
    ([4, 3], ['a'])
    """

    def __init__(self, words: Sequence[str]):
        self.words = (*SPECIAL, *words)
        self._places = {word: place for place, word in enumerate(self.words)}

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], least: int = 1) -> Vocabulary:
        """The words that occur at least so often, most frequent first, then by alphabet."""
        checks.whole("least", least)
        counts = Counter(word for sentence in sentences for word in sentence)
        return cls(sorted((word for word in counts if counts[word] >= least), key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Sequence[str]) -> list[int]:
        """The number of each word."""
        return [self._places.get(word, UNKNOWN) for word in words]

    def sentence(self, words: Sequence[str]) -> list[int]:
        """The number of each word, between BEGIN and END."""
        return [BEGIN, *self.encode(words), END]

    def decode(self, numbers: Sequence[int]) -> list[str]:
        """The words of these numbers."""
        return [self.words[number] for number in numbers]
