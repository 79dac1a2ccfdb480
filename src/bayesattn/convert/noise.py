"""`fit_noise`: random attention weights for a trained model, as noisy as held-out data want them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.convert.conversion import ADAPTERS, convert, revert
from bayesattn.posteriors.weibull import Weibull
from bayesattn.prediction.calibration.examples import IGNORED, batches, check_outputs, checked_labels
from bayesattn.prediction.calling import default_output
from bayesattn.prediction.likelihood import LIKELIHOODS, Likelihood, likelihood_of
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction
from bayesattn.prediction.sampled import output_tensors, sampled_outputs
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.support.selection import Where

SHAPES = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0)
"""Shapes k that are tried: from weights as noisy as exponential draws to a relative noise of 0.6 %."""


@dataclass(frozen=True)
class NoiseFit:
    """What was found; the model is converted where it `moved`."""

    k: float
    """The shape of the Weibull weights of highest held-out likelihood."""
    gain: float
    """By how much its noise lowers the held-out NLL of an example."""
    error: float
    """The standard error of the gain."""
    nll: dict[float, float]
    """Held-out NLL of an example at every shape; `inf` is the model without noise."""

    @property
    def moved(self) -> bool:
        """Whether the gain was above its standard error. If not, the model was left as it is."""
        return self.gain > self.error


def fit_noise(
    model: nn.Module,
    held_out: Any,
    *,
    where: Where = None,
    shapes: Sequence[float] = SHAPES,
    samples: int = 8,
    likelihood: Likelihood | None = None,
    output: Callable[[Any], Any] | None = None,
    max_rows: int | None = None,
    seed: int = 0,
) -> NoiseFit:
    """Make the attention of a trained `model` random, in place: Weibull weights with the shape that `held_out` data like best.

    The likelihood is that of the mixture of the samples. Where no noise gains more than its standard error the model stays as it is.
    In our trials this was no better than a temperature (`ba.calibrate`): compare both before you pay for samples.

    Args:
        model: a trained model that `ba.convert` takes, not converted.
        held_out: (inputs, labels), a mapping with "labels", or batches of those. Label -100: does not count.
        where: which attention layers, see `ba.convert`.
        shapes: the k that are tried.
        samples: passes of each; predict with as many.
        likelihood, output, max_rows: see `ba.predict`.
        seed: of the noise, the same for all shapes.

    >>> import torch, bayesattn as ba
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    >>> model = torch.nn.Sequential(layer, torch.nn.Linear(16, 3))  # trained, then:
    >>> fit = ba.fit_noise(model, (torch.randn(40, 5, 16), torch.randint(3, (40, 5))), samples=4)
    >>> fit.k in fit.nll, fit.moved == (fit.gain > fit.error)
    (True, True)
    """
    checks.whole("samples", samples, minimum=2)
    if max_rows is not None:
        checks.whole("max_rows", max_rows)
    if likelihood is not None:
        checks.one_of("likelihood", likelihood, LIKELIHOODS)
    if not shapes:
        raise ValueError("shapes must hold at least one k to try.")
    for shape in shapes:
        checks.positive("shapes", shape)
    if any(adapter.find_converted(model) for adapter in ADAPTERS):
        raise ValueError(f"{type(model).__name__} is converted already: call ba.revert(model) first.")
    data = list(batches(held_out, "held_out"))
    take = output or default_output

    def losses(count: int) -> Float[Tensor, " examples"]:
        found = []
        for number, (inputs, labels) in enumerate(data):
            device = next(model.parameters()).device
            collected = sampled_outputs(
                model,
                inputs,
                count,
                lambda result: output_tensors(take(result), likelihood),
                point_estimate=count == 1,
                max_rows=max_rows,
                generator=torch.Generator(device).manual_seed(seed + number),
            )
            check_outputs(collected, "held_out")
            kind = likelihood or likelihood_of(model, collected[0])
            found.append(_nll(collected, checked_labels(labels, collected[0][0], kind, "held_out"), kind).cpu())
        return torch.cat(found)

    plain = losses(1)
    noisy: dict[float, Tensor] = {}
    for shape in shapes:
        convert(model, Weibull(k=shape), where=where)
        try:
            noisy[shape] = losses(samples)
        finally:
            revert(model)
    best = min(noisy, key=lambda shape: noisy[shape].sum().item())
    gains = plain - noisy[best]
    error = gains.std().item() / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    nll = {shape: each.mean().item() for shape, each in noisy.items()} | {math.inf: plain.mean().item()}
    fit = NoiseFit(best, gains.mean().item(), error, nll)
    if fit.moved:
        convert(model, Weibull(k=best), where=where)
    return fit


def _nll(outputs: list[Tensor], labels: Tensor, likelihood: Likelihood) -> Float[Tensor, " examples"]:
    if likelihood == "values":
        raise ValueError(
            "likelihood='values' has no likelihood to fit noise by: give the model a standard deviation (gaussian)."
        )
    if likelihood == "categorical":
        counted = labels != IGNORED
        log_prob = CategoricalPrediction(outputs[0]).log_prob(labels.where(counted, 0)).where(counted, 0.0)
    elif likelihood == "bernoulli":
        log_prob = BernoulliPrediction(outputs[0]).log_prob(labels)
    else:
        log_prob = GaussianPrediction(outputs[0], outputs[1]).log_prob(labels)
    return -log_prob.double().reshape(len(labels), -1).sum(1)
