"""A bidirectional LSTM over padded sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bayesattn import checks
from bayesattn.annotations import Bool, Float


class BidirectionalLSTM(nn.Module):
    """[batch, length, input_dim] → [batch, length, 2 · hidden_dim], forward and backward side by side, zeros at padding.

    Padding comes last and has no influence: the backward direction starts at each sequence's own end.
    """

    def __init__(self, input_dim: int, hidden_dim: int, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        checks.whole("layers", layers)
        between = checks.fraction("dropout", dropout) if layers > 1 else 0.0
        self.lstm = nn.LSTM(
            checks.whole("input_dim", input_dim),
            checks.whole("hidden_dim", hidden_dim),
            layers,
            batch_first=True,
            bidirectional=True,
            dropout=between,
        )

    def forward(
        self, inputs: Float[Tensor, "batch length _"], mask: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length _"]:
        """`mask` is False for padding."""
        if mask is None:
            return self.lstm(inputs)[0]
        lengths = mask.sum(1)
        if not torch.equal(mask, torch.arange(mask.shape[1], device=mask.device) < lengths.unsqueeze(1)):
            raise ValueError("mask must be True up to each sequence's length and False after it: padding comes last.")
        packed = pack_padded_sequence(inputs, lengths.clamp_min(1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=inputs.shape[1])
        return outputs
