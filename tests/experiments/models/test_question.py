"""The state of a question does not depend on its padding."""

from __future__ import annotations

import torch

from bayesattn.experiments.models.question import QuestionEncoder


def test_padding_changes_nothing() -> None:
    encoder = QuestionEncoder(10, 4, 6)
    short, last = encoder(torch.tensor([[3, 4]]))
    long, padded_last = encoder(torch.tensor([[3, 4, 0, 0]]))
    torch.testing.assert_close(long[:, :2], short)
    torch.testing.assert_close(padded_last, last)
    torch.testing.assert_close(last, short[:, 1])
