"""Schedules of the KL's weight: functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable

from bayesattn.support import checks

Schedule = Callable[[int], float]


def constant(weight: float = 1.0) -> Schedule:
    """The same weight at every step."""
    checks.finite("weight", weight)
    return lambda step: weight


def linear(steps: int, start: float = 0.0, end: float = 1.0) -> Schedule:
    """From `start` to `end` in `steps` steps, `end` from then on.

    >>> linear(10)(5)
    0.5
    """
    checks.whole("steps", steps)
    return lambda step: start + (end - start) * min(max(step, 0) / steps, 1.0)


def sigmoid(rho: float) -> Schedule:
    """sigmoid(rho · step): the schedule of BAM. It starts at 0.5, and does not overflow as the reference's does.

    >>> sigmoid(0.1)(0)
    0.5
    """
    checks.positive("rho", rho)
    return lambda step: 1.0 / (1.0 + math.exp(-min(rho * max(step, 0), 700.0)))


def cyclic(period: int, ramp: float = 0.5) -> Schedule:
    """From 0 to 1 in the first part `ramp` of every period, then 1 until the period ends.

    >>> [cyclic(4)(step) for step in range(6)]
    [0.0, 0.5, 1.0, 1.0, 0.0, 0.5]
    """
    checks.whole("period", period)
    if not 0 < ramp <= 1:
        raise ValueError(f"ramp must lie in (0, 1], got {ramp!r}: it is the rising part of each period.")
    return lambda step: min((step % period) / (ramp * period), 1.0)
