"""The thesis's five toy time series (Cinquin 2021, section 3.1): processes that can be drawn from and whose density is known.

Each process is one function, the law of the next value given those before it. Drawing, the conditional moments and the density
all come from that function, so the floor (the best log-likelihood that any causal model can have) belongs to the same process.
The noise is N(0, sigma²); values before the recursion starts are N(0, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from bayesattn.support import checks
from bayesattn.support.annotations import Float

STEPS = 24
"""Predicted values of each sequence, which has one value more."""
MANY = 40_000
"""Sequences that moments given the last value alone are estimated from."""
NEAREST = 400
"""Of them, those that count for one value."""
OTHER_SEED = 1_000_003
"""Theirs: no data set's."""


class Process:
    """A time series by the law of its next value. `order` values start it, each N(0, 1)."""

    order = 1

    def law(self, past: Float[Tensor, "n time"]) -> Distribution:
        """The distribution of the next value, given at least `order` values."""
        raise NotImplementedError

    def next(self, past: Float[Tensor, "n time"]) -> Distribution:
        """The distribution of the next value, given any number of values."""
        if past.shape[1] < self.order:
            zeros = past.new_zeros(past.shape[0])
            return Normal(zeros, zeros + 1)
        return self.law(past)

    def sample(self, count: int, seed: int) -> Float[Tensor, "n time"]:
        """`count` sequences of STEPS + 1 values, in double precision."""
        with torch.random.fork_rng(devices=[]):  # torch.distributions draw from the global generator only
            torch.manual_seed(seed)
            values = torch.empty(count, 0, dtype=torch.float64)
            for _ in range(STEPS + 1):
                values = torch.cat([values, self.next(values).sample().unsqueeze(1)], 1)
        return values


class M1(Process):
    """X' = 0.8 X + noise, sigma² = 0.5."""

    def law(self, past: Tensor) -> Distribution:
        return Normal(0.8 * past[:, -1], math.sqrt(0.5))


class M2(Process):
    """X' = 0.9 X with probability 0.7, else 0.54 X, + noise, sigma² = 0.3."""

    def law(self, past: Tensor) -> Distribution:
        last = past[:, -1]
        branches = torch.stack([0.9 * last, 0.54 * last], -1)
        chance = Categorical(torch.tensor([0.7, 0.3], dtype=past.dtype).expand_as(branches))
        return MixtureSameFamily(chance, Normal(branches, math.sqrt(0.3)))


class M3(Process):
    """X' = Σ_n cos(w_n X + b_n) / N + noise, N = 5, w_n = 2 pi n / N, b_n = 1 / (n + 1), sigma² = 0.5."""

    def law(self, past: Tensor) -> Distribution:
        n = torch.arange(5, dtype=past.dtype)
        waves = torch.cos(2 * math.pi * n / 5 * past[:, -1:] + 1 / (n + 1))
        return Normal(waves.mean(-1), math.sqrt(0.5))


class M4(Process):
    """X' = 0.8 · mean of the last K + X_0 / K + noise, K = 5, sigma² = 0.5."""

    order = 5

    def law(self, past: Tensor) -> Distribution:
        return Normal(0.8 * past[:, -5:].mean(-1) + past[:, 0] / 5, math.sqrt(0.5))


class M5(Process):
    """X' = Σ_i Σ_j cos(w_j X_i) / 2 + noise over the last K values i and N waves j, w_j = 4 pi j / N (constants inferred).

    The thesis states neither K (`window`) nor N (`waves`) nor sigma². 5, 5 and 0.5 are inferred: its best MSE implies K and sigma².
    What other constants give: `bayesattn constants`.
    """

    def __init__(self, waves: int = 5, window: int = 5):
        self.waves = checks.whole("waves", waves)
        self.order = checks.whole("window", window)

    def law(self, past: Tensor) -> Distribution:
        j = torch.arange(self.waves, dtype=past.dtype)
        waves = 0.5 * torch.cos(4 * math.pi * j / self.waves * past[:, -self.order :, None])
        return Normal(waves.sum((-1, -2)), math.sqrt(0.5))


PROCESSES: dict[str, type[Process]] = {"m1": M1, "m2": M2, "m3": M3, "m4": M4, "m5": M5}


@dataclass(frozen=True)
class Truth:
    """What the process itself says of each predicted value: the moments of its law, and the log density of the value."""

    mean: Float[Tensor, "n steps"]
    variance: Float[Tensor, "n steps"]
    log_prob: Float[Tensor, "n steps"]


def truth(process: Process, values: Float[Tensor, "n time"]) -> Truth:
    """The process's own predictions of values 1 … end of each sequence."""
    values = values.double()
    columns = []
    for time in range(1, values.shape[1]):
        law = process.next(values[:, :time])
        columns.append((law.mean, law.variance, law.log_prob(values[:, time])))
    mean, variance, log_prob = (torch.stack(column, 1) for column in zip(*columns, strict=True))
    return Truth(mean, variance, log_prob)


def variance_given_last(process: Process, values: Float[Tensor, "n time"]) -> Float[Tensor, "n steps"]:
    """var(X_t+1 | X_t) of values 1 … end: what the thesis's variance error names, which knows the last value alone.

    Of a process of order 1 it is the variance of the law. Otherwise it is the mean of the law's variance plus the variance of its mean
    over all pasts that end in X_t: of MANY drawn sequences, the NEAREST to X_t at that time; a line takes out what of the mean is X_t's.
    """
    if process.order == 1:
        return truth(process, values).variance
    values, drawn = values.double(), process.sample(MANY, seed=OTHER_SEED)
    columns = []
    for time in range(1, values.shape[1]):
        law = process.next(drawn[:, :time])
        last, order = drawn[:, time - 1].sort()
        start = torch.searchsorted(last, values[:, time - 1].contiguous()) - NEAREST // 2
        near = start.clamp(0, MANY - NEAREST).unsqueeze(1) + torch.arange(NEAREST)
        x, mean, variance = last[near], law.mean[order][near], law.variance[order][near]
        x, mean = x - x.mean(1, keepdim=True), mean - mean.mean(1, keepdim=True)
        slope = (x * mean).sum(1, keepdim=True) / x.square().sum(1, keepdim=True)
        columns.append(variance.mean(1) + (mean - slope * x).square().sum(1) / (NEAREST - 2))
    return torch.stack(columns, 1)


def load_toy(process: Process, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """800, 80 and 80 sequences [n, STEPS + 1] of a process, to train, validate and test."""
    train, validation, test = process.sample(960, seed).float().split([800, 80, 80])
    return train, validation, test
