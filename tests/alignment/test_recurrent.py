"""The bidirectional LSTM: torch's own, with padding that has no influence in either direction."""

from __future__ import annotations

import pytest
import torch

from bayesattn.alignment import BidirectionalLSTM


def test_it_is_torchs_lstm_and_padding_has_no_influence() -> None:
    ours = BidirectionalLSTM(3, 4, layers=2, dropout=0.2).eval()
    torchs = torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for layer in range(2):
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                for module, suffix in ((ours.rightward[layer], ""), (ours.leftward[layer], "_reverse")):
                    getattr(torchs, f"{kind}_l{layer}{suffix}").copy_(getattr(module, f"{kind}_l0"))
    inputs = torch.randn(3, 6, 3)
    lengths = (6, 2, 4)
    outputs = ours(inputs, torch.arange(6) < torch.tensor(lengths).unsqueeze(1))
    for b, length in enumerate(lengths):
        assert torch.allclose(outputs[b, :length], torchs(inputs[b : b + 1, :length])[0][0], atol=1e-6)
        assert (outputs[b, length:] == 0).all()
    assert torch.allclose(ours(inputs), torchs(inputs)[0], atol=1e-6)


def test_padding_must_come_last() -> None:
    with pytest.raises(ValueError, match="padding comes last"):
        BidirectionalLSTM(3, 4)(torch.randn(1, 3, 3), torch.tensor([[False, True, True]]))
