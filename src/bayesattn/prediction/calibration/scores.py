"""Scores of how little a model knows, from its samples alone: the larger, the less.

Scores of the *prediction* say how unsure the answer is; scores of the *input* say how unlike the training data the question is. All are
taken before the temperature, so that nothing in them was fitted to the held-out data that later judge them.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.numerics.precision import to_compute
from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction, Prediction

Of = Literal["prediction", "input"]

SCORES: dict[str, tuple[Of, str]] = {
    "confidence": ("prediction", "1 less the probability of the answer"),
    "entropy": ("prediction", "entropy of the predictive distribution"),
    "mutual_information": ("prediction", "how much the samples disagree, in nats"),
    "variance": (
        "prediction",
        "predictive variance; of classes that of their probabilities over the samples, added up",
    ),
    "energy": ("input", "-logsumexp of the logits (Liu et al. 2020), the mean over samples; of labels -Σ softplus"),
    "max_logit": ("input", "less the largest logit, the mean over samples"),
    "distance": ("input", "squared Mahalanobis distance of the features from the nearest class of the training data"),
    "process_variance": ("input", "variance of a Gaussian process of the features after the training data (SNGP)"),
    "relative_distance": ("input", "the same, less the distance from all training data together"),
}
"""Every score: what it is a score of, and what it is."""


def scores_of(outputs: list[Tensor], likelihood: Likelihood) -> dict[str, Tensor]:
    """The scores that outputs, [samples, batch, ...], have, by name. Each is [batch], with positions [batch, ...] for logits."""
    if likelihood == "categorical":
        logits = to_compute(outputs[0])
        return _of_classes(CategoricalPrediction(logits)) | {
            "energy": -logits.logsumexp(-1).mean(0),
            "max_logit": -logits.amax(-1).mean(0),
        }
    if likelihood == "bernoulli":
        logits = to_compute(outputs[0])
        return _of_labels(BernoulliPrediction(logits)) | {
            "energy": -F.softplus(logits).sum(-1).mean(0),
            "max_logit": -logits.amax(-1).mean(0),
        }
    prediction = GaussianPrediction(*outputs) if likelihood == "gaussian" else Prediction(outputs[0])
    if likelihood == "gaussian" or len(outputs[0]) > 1:
        variance = to_compute(prediction.variance)
        return {"variance": variance.reshape(len(variance), variance.shape[1:].numel()).sum(-1)}
    return {}


def _of_classes(prediction: CategoricalPrediction) -> dict[str, Tensor]:
    # confidence by the others' probabilities: near 1, a float32 has no digits left for 1 - p
    found = {"confidence": _without_largest(prediction.mean), "entropy": prediction.entropy}
    if len(prediction.samples) > 1:
        found["mutual_information"] = prediction.mutual_information
        found["variance"] = prediction.variance.sum(-1)
    return found


def _of_labels(prediction: BernoulliPrediction) -> dict[str, Tensor]:
    mean = prediction.mean
    found = {"confidence": torch.minimum(mean, 1 - mean).amax(-1), "entropy": prediction.entropy.sum(-1)}
    if len(prediction.samples) > 1:
        found["mutual_information"] = prediction.mutual_information.sum(-1)
        found["variance"] = prediction.variance.sum(-1)
    return found


def _without_largest(probabilities: Tensor) -> Tensor:
    largest = probabilities.argmax(-1, keepdim=True)
    return probabilities.scatter(-1, largest, 0.0).sum(-1)
