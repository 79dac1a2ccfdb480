"""The tagger: every word sees every word, and none sees padding."""

from __future__ import annotations

import pytest
import torch

from bayesattn.experiments.models.tagger import Tagger


def test_padding_does_not_change_the_tags_of_words() -> None:
    model = Tagger(vocabulary=20, tags=5, max_len=8, dim=16).eval()
    words = torch.tensor([[3, 4, 5, 6]])
    padded = torch.nn.functional.pad(words, (0, 4))
    torch.testing.assert_close(model(words), model(padded)[:, :4])


def test_a_word_depends_on_later_words() -> None:
    model = Tagger(vocabulary=20, tags=5, max_len=8, dim=16).eval()
    first, second = model(torch.tensor([[3, 4, 5]])), model(torch.tensor([[3, 4, 6]]))
    assert (first[:, 0] - second[:, 0]).abs().max() > 1e-6


def test_a_longer_sentence_is_refused() -> None:
    with pytest.raises(ValueError, match="9 tokens is longer than max_len=8"):
        Tagger(vocabulary=20, tags=5, max_len=8, dim=16)(torch.ones(1, 9, dtype=torch.long))
