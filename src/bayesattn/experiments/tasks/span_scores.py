"""Exact match and F1 of answers, as SQuAD's evaluation has them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def words_of_answer(answer: str) -> list[str]:
    """Lower case, without punctuation and articles.

    >>> words_of_answer("The Eiffel-Tower, (Paris).")
    ['eiffeltower', 'paris']
    """
    return _ARTICLES.sub(" ", _PUNCTUATION.sub("", answer.lower())).split()


def exact_match(said: str, answers: Sequence[str]) -> float:
    """1 if it is one of the answers; without answers, if nothing is said.

    >>> exact_match("the cat", ["Cat!", "dog"]), exact_match("", []), exact_match("cat", [])
    (1.0, 1.0, 0.0)
    """
    return _best(lambda one, other: float(one == other), said, answers)


def f1(said: str, answers: Sequence[str]) -> float:
    """The harmonic mean of the shares of words that it has in common with an answer, for the best of the answers.

    >>> f1("the black cat", ["cat", "a dog"]), f1("", ["cat"]), f1("", [])
    (0.6666666666666666, 0.0, 1.0)
    """
    return _best(_f1_of_words, said, answers)


def _best(score: Callable[[list[str], list[str]], float], said: str, answers: Sequence[str]) -> float:
    # answers that are articles and punctuation alone are left out, as SQuAD does
    wanted = [words for words in map(words_of_answer, answers) if words] or [[]]
    return max(score(words_of_answer(said), words) for words in wanted)


def _f1_of_words(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted))
