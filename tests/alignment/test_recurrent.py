"""The bidirectional LSTM: padding has no influence, in either direction."""

from __future__ import annotations

import pytest
import torch

from bayesattn.alignment import BidirectionalLSTM


def test_padding_has_no_influence() -> None:
    lstm = BidirectionalLSTM(3, 4, layers=2, dropout=0.2).eval()
    inputs = torch.randn(3, 6, 3)
    mask = torch.arange(6) < torch.tensor([6, 2, 4]).unsqueeze(1)
    outputs = lstm(inputs, mask)
    for b, length in enumerate((6, 2, 4)):
        assert torch.allclose(outputs[b, :length], lstm(inputs[b : b + 1, :length])[0], atol=1e-6)
        assert (outputs[b, length:] == 0).all()


def test_padding_must_come_last() -> None:
    with pytest.raises(ValueError, match="padding comes last"):
        BidirectionalLSTM(3, 4)(torch.randn(1, 3, 3), torch.tensor([[False, True, True]]))
