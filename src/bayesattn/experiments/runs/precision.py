"""The arithmetic of a run: products in bfloat16 where that is asked for, and no denormal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


class InBfloat16(nn.Module):
    """A model whose matrix products are in bfloat16. Its parameters, and what it returns to the loss, are in float32; so are noise and KL,
    which the library computes in float32 whatever the model's products are in.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the model returns, in float32."""
        device = next(self.model.parameters()).device.type
        with torch.autocast(device, torch.bfloat16):
            output = self.model(*inputs, **options)
        return pytree.tree_map_only(Tensor, lambda each: each.float() if each.is_floating_point() else each, output)


@contextmanager
def denormals_are_zero() -> Iterator[None]:
    """Numbers below 1e-38 are taken for 0 in this block: processors are many times slower with them."""
    before = _are_zero()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _are_zero() -> bool:
    return (torch.full((1,), 1e-38) * 1e-2).item() == 0.0
