"""Contexts: every position, chosen positions, averages."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bayesattn.alignment import contexts


def test_picked_and_enumerated_contexts_are_averages_with_one_hot_weights() -> None:
    memory = torch.randn(2, 5, 3)
    chosen = torch.randint(5, (4, 2, 6))
    one_hot = F.one_hot(chosen, 5).float()
    assert torch.allclose(contexts.pick(memory, chosen), contexts.average(memory, one_hot))
    for i in range(5):
        assert torch.equal(contexts.every(memory)[i, :, 0], memory[:, i])
