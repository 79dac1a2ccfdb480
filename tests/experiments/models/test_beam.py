"""Beam search: exhaustive when wide enough, greedy when narrow, and the same alone as in a batch."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from bayesattn.experiments.models.beam import Hypotheses, beam_search

PAD, BOS, EOS, WORDS, LENGTH = 0, 1, 2, 6, 4


class Language:
    """Words whose probabilities depend on all words before: the state is a hash of the prefix, different for each example."""

    def __init__(self, batch: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.tables = torch.randn(batch, 997, WORDS, generator=generator).mul(1.5).log_softmax(-1)

    def next_words(self, tokens: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        example, prefix = state
        prefix = (prefix * 31 + tokens + 1) % 997
        return self.tables[example, prefix], (example, prefix)

    def search(self, width: int, length_penalty: float, examples: Tensor | None = None) -> Hypotheses:
        examples = torch.arange(len(self.tables)) if examples is None else examples
        rows = examples.repeat_interleave(width)
        return beam_search(
            self.next_words,
            (rows, torch.zeros_like(rows)),
            batch=len(examples),
            width=width,
            bos=BOS,
            eos=EOS,
            max_length=LENGTH,
            length_penalty=length_penalty,
            forbidden=(PAD, BOS),
        )

    def log_probability(self, example: int, sentence: tuple[int, ...]) -> float:
        total, prefix, last = 0.0, 0, BOS
        for word in sentence:
            prefix = (prefix * 31 + last + 1) % 997
            total += float(self.tables[example, prefix, word])
            last = word
        return total

    def exhaustive(self, example: int, length_penalty: float) -> tuple[float, list[int]]:
        """Every sentence of at most LENGTH tokens; log p / ((5 + tokens + bos) / 6)^penalty."""
        scored = []
        for length in range(1, LENGTH + 1):
            for words in itertools.product([w for w in range(WORDS) if w not in (PAD, BOS, EOS)], repeat=length - 1):
                score = self.log_probability(example, (*words, EOS)) / ((6 + length) / 6) ** length_penalty
                scored.append((score, list(words)))
        return max(scored)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 3.0])
def test_a_wide_beam_is_exhaustive_search(length_penalty: float) -> None:
    language = Language(8, seed=2)
    found = language.search(3**LENGTH, length_penalty)
    lengths = set()
    for example, sentence in enumerate(found.best()):
        score, words = language.exhaustive(example, length_penalty)
        assert sentence == words
        assert found.scores[example, 0] == pytest.approx(score, abs=1e-5)
        lengths.add(len(words))
    assert len(lengths) > 1  # sentences of several lengths win: the penalty is at work


def test_a_narrow_beam_without_penalty_is_greedy() -> None:
    language = Language(10, seed=1)
    for example, sentence in enumerate(language.search(1, 0.0).best()):
        state, last, greedy = (torch.tensor([example]), torch.tensor([0])), torch.tensor([BOS]), []
        for _ in range(LENGTH - 1):
            log_probs, state = language.next_words(last, state)
            log_probs[:, [PAD, BOS]] = float("-inf")
            last = log_probs.argmax(-1)
            if last == EOS:
                break
            greedy.append(int(last))
        assert sentence == greedy


def test_an_examples_result_does_not_depend_on_its_batch() -> None:
    language = Language(6, seed=3)
    together = language.search(3, 1.0)
    for example in range(6):
        alone = language.search(3, 1.0, torch.tensor([example]))
        assert torch.equal(alone.tokens[0], together.tokens[example])
        assert torch.allclose(alone.scores[0], together.scores[example])


def test_scores_are_the_sentences_own_and_sorted() -> None:
    language = Language(4, seed=4)
    found = language.search(5, 1.0)
    for example in range(4):
        for tokens, score in zip(found.tokens[example].tolist(), found.scores[example].tolist(), strict=True):
            if score > float("-inf"):
                sentence = (*tokens[: tokens.index(EOS)], EOS)
                expected = language.log_probability(example, sentence) / ((6 + len(sentence)) / 6)
                assert score == pytest.approx(expected, abs=1e-5)
    assert (found.scores[:, :-1] >= found.scores[:, 1:]).all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="width must be a whole number of at least 1, got 0"):
        Language(1, 0).search(0, 1.0)
    with pytest.raises(ValueError, match="length_penalty must not be negative, got -1"):
        Language(1, 0).search(2, -1.0)
