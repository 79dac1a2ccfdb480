"""Positive numbers as the softplus of free ones, and the logarithms of them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

THESIS_START = math.log1p(math.exp(-7.0))
"""softplus(-7): where the thesis starts every learned positive quantity."""
SAME_LOG = -40.0
"""Below it, log softplus(x) is x to the last digit of float64."""


def inverse_softplus(value: float) -> float:
    """The number whose softplus is `value`."""
    return value + math.log(-math.expm1(-value))


def log_softplus(raw: Tensor) -> Tensor:
    """log softplus(raw), which is raw itself far below 0: there the gradient of the logarithm alone, 1 / softplus, would overflow.

    >>> import torch
    >>> log_softplus(torch.tensor([-1e5, -50.0, 1.0]))
    tensor([-1.0000e+05, -5.0000e+01,  2.7251e-01])
    """
    return torch.where(raw < SAME_LOG, raw, F.softplus(raw.clamp_min(SAME_LOG)).log())
