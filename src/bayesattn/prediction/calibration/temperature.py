"""One number that makes a model as sure as it should be: a temperature of logits, or a factor of standard deviations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.numerics.precision import to_compute
from bayesattn.prediction.calibration.examples import IGNORED
from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction
from bayesattn.support.annotations import Float

TEMPERATURES = [10.0 ** (step / 60.0) for step in range(-60, 61)]
"""From 0.1 to 10, 4 % apart: half a step in T changes the likelihood by less than data can tell."""
_ONE = TEMPERATURES.index(1.0)


@dataclass(frozen=True)
class Temperature:
    """What was fitted, and what it gains on the held-out data."""

    value: float
    gain: float
    """Of the best temperature: by how much it lowers the held-out NLL of a position."""
    error: float
    """The standard error of the gain."""

    @property
    def moved(self) -> bool:
        """Whether it is not 1: the gain was above its standard error."""
        return self.value != 1.0


def tempered(outputs: list[Tensor], likelihood: Likelihood, temperature: float) -> list[Tensor]:
    """Logits divided by the temperature; standard deviations multiplied by it; values as they are."""
    if likelihood in ("categorical", "bernoulli"):
        return [to_compute(outputs[0]) / temperature]
    if likelihood == "gaussian":
        return [outputs[0], outputs[1] * temperature]
    return outputs


class TemperatureFit:
    """The held-out NLL at every temperature, batch by batch: memory of one number for each example and temperature.

    With several samples or members the likelihood is that of their mixture, Σ_s softmax(z_s / T) / S.
    """

    def __init__(self, likelihood: Likelihood):
        self.likelihood: Likelihood = likelihood
        self._losses: list[Tensor] = []
        self._positions = 0

    def add(self, outputs: list[Tensor], labels: Tensor) -> None:
        """Count in the outputs, [samples, batch, ...], of examples with these labels."""
        counted = labels != IGNORED if self.likelihood == "categorical" else torch.ones_like(labels, dtype=torch.bool)
        self._positions += int(counted.sum())
        columns = [self._nll(outputs, labels, counted, temperature) for temperature in TEMPERATURES]
        self._losses.append(torch.stack(columns, 1).cpu())

    def fitted(self) -> Temperature:
        """The temperature of lowest NLL, or 1 where that gains less than its standard error.

        Positions of one example are not independent: the error is taken over examples.
        """
        losses = torch.cat(self._losses)
        if not bool(losses[:, _ONE].isfinite().all()):
            rows = int((~losses[:, _ONE].isfinite()).sum())
            raise ValueError(
                f"held_out: the model gives the labels of {rows} of {len(losses)} examples no probability at all."
            )
        best = int(losses.sum(0).nan_to_num(torch.inf).argmin())
        gains = losses[:, _ONE] - losses[:, best]
        positions = max(self._positions, 1)
        gain = gains.sum().item() / positions
        error = gains.std(correction=1).item() * math.sqrt(len(gains)) / positions if len(gains) > 1 else math.inf
        return Temperature(TEMPERATURES[best] if gain > error else 1.0, gain, error)

    def _nll(
        self, outputs: list[Tensor], labels: Tensor, counted: Tensor, temperature: float
    ) -> Float[Tensor, " batch"]:
        scaled = tempered(outputs, self.likelihood, temperature)
        if self.likelihood == "categorical":
            log_prob = CategoricalPrediction(scaled[0]).log_prob(labels.where(counted, 0)).where(counted, 0.0)
        elif self.likelihood == "bernoulli":
            log_prob = BernoulliPrediction(scaled[0]).log_prob(labels)
        else:
            log_prob = GaussianPrediction(scaled[0], scaled[1]).log_prob(labels)
        return -log_prob.double().reshape(len(labels), -1).sum(1)
