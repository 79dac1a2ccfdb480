"""Batches of sequences of similar length."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bayesattn.support.annotations import Int

POOL = 50
"""Sequences of similar length are gathered from so many batches."""


def by_length(lengths: Int[Tensor, " examples"], order: Int[Tensor, " examples"], size: int) -> Sequence[Tensor]:
    """The indices in random `order` as batches of sequences of similar length, so that little is padding; the batches in random order."""
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order.split(POOL * size)]
    batches = torch.cat(pools).split(size)
    return [batches[place] for place in order[order < len(batches)].tolist()]
