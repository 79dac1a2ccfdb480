"""Figures of class probabilities that several tasks share."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.support.annotations import Float, Shaped

CALIBRATION_BINS = 15


def figures(probabilities: Float[Tensor, "n classes"], labels: Shaped[Tensor, " n"]) -> dict[str, float]:
    """Accuracy, F1 (the mean over the classes that occur, weighted by how often) and expected calibration error."""
    from torchmetrics.functional.classification import (  # takes seconds
        multiclass_calibration_error,
        multiclass_f1_score,
    )

    classes = probabilities.shape[-1]
    return {
        "accuracy": (probabilities.argmax(-1) == labels).float().mean().item(),
        "f1": multiclass_f1_score(probabilities, labels, classes, average="weighted").item(),
        "ece": multiclass_calibration_error(probabilities, labels, classes, n_bins=CALIBRATION_BINS).item(),
    }


def auroc(scores_of_zero: Float[Tensor, " n"], scores_of_one: Float[Tensor, " m"]) -> float:
    """How well a score tells ones from zeros: the chance that a random one scores higher than a random zero."""
    from torchmetrics.functional.classification import binary_auroc  # takes seconds

    scores = torch.cat([scores_of_zero, scores_of_one]).double()
    labels = torch.cat([torch.zeros(len(scores_of_zero)), torch.ones(len(scores_of_one))]).long()
    # torchmetrics takes scores outside [0, 1] for logits and squashes them, where close ones would tie
    return binary_auroc((scores - scores.min()) / (scores.max() - scores.min()).clamp_min(1e-300), labels).item()


def calibration_error(confidence: Float[Tensor, " n"], accuracy: Float[Tensor, " n"]) -> float:
    """Expected calibration error where accuracies may lie between 0 and 1: torchmetrics' takes right and wrong alone."""
    place = (confidence * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1
    gaps = torch.zeros(CALIBRATION_BINS, dtype=torch.double, device=confidence.device)
    return gaps.index_add(0, place, (confidence - accuracy).double()).abs().sum().item() / len(confidence)
