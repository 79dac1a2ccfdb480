"""A bidirectional LSTM over padded sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Shaped


class BidirectionalLSTM(nn.Module):
    """[batch, length, input_dim] → [batch, length, 2 · hidden_dim], forward and backward side by side, zeros at padding.

    Padding comes last and has no influence: the backward direction starts at each sequence's own end. It is a forward LSTM
    over the reversed sequence; torch's LSTM over packed sequences is slower on a CPU.
    """

    def __init__(self, input_dim: int, hidden_dim: int, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        checks.whole("hidden_dim", hidden_dim)
        sizes = [checks.whole("input_dim", input_dim), *[2 * hidden_dim] * (checks.whole("layers", layers) - 1)]
        self.rightward = nn.ModuleList(nn.LSTM(size, hidden_dim, batch_first=True) for size in sizes)
        self.leftward = nn.ModuleList(nn.LSTM(size, hidden_dim, batch_first=True) for size in sizes)
        self.dropout = nn.Dropout(checks.fraction("dropout", dropout))

    def forward(
        self, inputs: Float[Tensor, "batch length _"], mask: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length _"]:
        """`mask` is False for padding. Dropout is applied between layers."""
        order = _reversal(torch.ones_like(inputs[..., 0], dtype=torch.bool) if mask is None else mask)
        states = inputs
        for layer, (rightward, leftward) in enumerate(zip(self.rightward, self.leftward, strict=True)):
            states = states if layer == 0 else self.dropout(states)
            left = _reorder(lstm_states(leftward, _reorder(states, order)), order)  # pyright: ignore[reportArgumentType]
            states = torch.cat([lstm_states(rightward, states), left], -1)  # pyright: ignore[reportArgumentType]
        return states if mask is None else states.masked_fill(~mask.unsqueeze(-1), 0.0)


def lstm_states(lstm: nn.LSTM, inputs: Float[Tensor, "batch length _"]) -> Float[Tensor, "batch length _"]:
    """The states at all positions; in float32 where autocast asks for bfloat16 and the processor's LSTM has none of it."""
    if (
        inputs.device.type == "cpu"
        and torch.is_autocast_enabled("cpu")
        and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    ):
        with torch.autocast("cpu", enabled=False):
            return lstm(inputs.float())[0]
    return lstm(inputs)[0]


def _reversal(mask: Bool[Tensor, "batch length"]) -> Shaped[Tensor, "batch length"]:
    """The positions of each sequence from its end to its start, padding where it was; its own inverse."""
    positions, lengths = torch.arange(mask.shape[1], device=mask.device), mask.sum(1, keepdim=True)
    if not torch.equal(mask, positions < lengths):
        raise ValueError("mask must be True up to each sequence's length and False after it: padding comes last.")
    return torch.where(mask, lengths - 1 - positions, positions)


def _reorder(states: Tensor, order: Tensor) -> Tensor:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))
