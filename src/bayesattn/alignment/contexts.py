"""Contexts from a memory: every position, some positions, or averages of them; the choices come first."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.support.annotations import Float, Shaped


def every(memory: Float[Tensor, "batch source features"]) -> Float[Tensor, "source batch 1 features"]:
    """Each position of the memory, the same for all target tokens; a view."""
    return memory.transpose(0, 1).unsqueeze(2)


def pick(
    memory: Float[Tensor, "batch source features"], chosen: Shaped[Tensor, "choices batch target"]
) -> Float[Tensor, "choices batch target features"]:
    """The memory at the chosen positions."""
    examples = torch.arange(memory.shape[0], device=chosen.device).view(1, -1, 1)
    return memory[examples, chosen]


def average(
    memory: Float[Tensor, "batch source features"], weights: Float[Tensor, "choices batch target source"]
) -> Float[Tensor, "choices batch target features"]:
    """The memory averaged with weights."""
    return weights.to(memory.dtype) @ memory
