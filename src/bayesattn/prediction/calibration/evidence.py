"""What held-out examples leave behind: their scores, and how far the model was off. New predictions are compared with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from bayesattn.prediction.calibration.examples import IGNORED
from bayesattn.prediction.calibration.scores import scores_of
from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction, Prediction
from bayesattn.support.annotations import Bool, Float

Positions = Literal["one", "all"]


@dataclass(frozen=True)
class Evidence:
    """One row for each independent piece of held-out data: an example, or one position of it."""

    scores: dict[str, Float[Tensor, " n"]]
    wrong: Bool[Tensor, " n"] | None = None
    """Whether the answer was wrong; None for a regression."""
    nonconformity: dict[str, Float[Tensor, " n"]] = field(default_factory=dict)
    """Of the true class, for each form of conformal sets."""
    residuals: Float[Tensor, "n values"] | None = None
    """Of a regression: |value - mean|, for "gaussian" in predictive standard deviations."""
    errors: Float[Tensor, " n"] | None = None
    """Of a regression: the largest |value - mean| of an example."""

    def __len__(self) -> int:
        return len(next(each for each in (self.wrong, self.errors) if each is not None))


def evidence_of(
    outputs: list[Tensor], labels: Tensor, likelihood: Likelihood, extra: dict[str, Tensor], chosen: Tensor | None
) -> Evidence:
    """What these outputs, [samples, batch, ...], and labels say; `extra` are scores that the outputs do not have.

    `chosen` are the positions that count, [batch, ...], for logits of classes.
    """
    scores = {**scores_of(outputs, likelihood), **extra}
    if likelihood == "categorical":
        assert chosen is not None
        prediction = CategoricalPrediction(outputs[0][:, chosen])
        labels, mean = labels[chosen], prediction.mean
        of_label = {form: of_classes(mean).gather(1, labels.unsqueeze(1))[:, 0] for form, of_classes in FORMS.items()}
        return _on_cpu({name: score[chosen] for name, score in scores.items()}, prediction.label != labels, of_label)
    if likelihood == "bernoulli":
        return _on_cpu(scores, (BernoulliPrediction(outputs[0]).label != labels.bool()).flatten(1).any(1))
    off = (labels - mean_of(outputs, likelihood)).abs().reshape(len(labels), labels.shape[1:].numel())
    scale = scale_of(outputs, likelihood)
    residuals = off if scale is None else off / scale.reshape(off.shape)
    return _on_cpu(scores, residuals=residuals, errors=off.amax(1))


def positions_that_count(labels: Tensor, positions: Positions, generator: torch.Generator) -> Bool[Tensor, " *shape"]:
    """Which labels count: all that are not ignored, or one of each example, drawn.

    Tokens of one sentence are alike; only one of each sentence makes independent rows.
    """
    counted = labels != IGNORED
    if positions == "all" or labels.dim() == 1:
        return counted
    flat = counted.flatten(1)
    lots = torch.rand(flat.shape, generator=generator).to(labels.device).masked_fill(~flat, -1.0)
    drawn = torch.zeros_like(flat).scatter(1, lots.argmax(1, keepdim=True), True)
    return (drawn & flat).view(labels.shape)


def joined(parts: list[Evidence]) -> Evidence:
    """The rows of all."""
    first = parts[0]

    def rows(name: str) -> Tensor | None:
        if getattr(first, name) is None:
            return None
        return torch.cat([getattr(part, name) for part in parts])

    if (
        first.residuals is not None
        and len({part.residuals.shape[1] for part in parts if part.residuals is not None}) > 1
    ):
        raise ValueError(
            "held_out: the model predicts another number of values in some batches; intervals are one for each value."
        )
    return Evidence(
        {name: torch.cat([part.scores[name] for part in parts]) for name in first.scores},
        rows("wrong"),
        {form: torch.cat([part.nonconformity[form] for part in parts]) for form in first.nonconformity},
        rows("residuals"),
        rows("errors"),
    )


def mean_of(outputs: list[Tensor], likelihood: Likelihood) -> Tensor:
    return _regression(outputs, likelihood).mean


def scale_of(outputs: list[Tensor], likelihood: Likelihood) -> Tensor | None:
    """Predictive standard deviations, if the model says any."""
    return _regression(outputs, likelihood).variance.sqrt() if likelihood == "gaussian" else None


def _regression(outputs: list[Tensor], likelihood: Likelihood) -> Prediction:
    return GaussianPrediction(*outputs) if likelihood == "gaussian" else Prediction(outputs[0])


def least_ambiguous(probabilities: Float[Tensor, "*shape classes"]) -> Float[Tensor, "*shape classes"]:
    """1 - p of each class (LAC, Sadinle et al. 2019): the smallest sets on average; they may be empty."""
    return 1 - probabilities


def adaptive(probabilities: Float[Tensor, "*shape classes"]) -> Float[Tensor, "*shape classes"]:
    """For each class the probability of all that come before it (APS, Romano et al. 2020, without randomisation).

    Sets are never empty, larger where the model is unsure, and cover somewhat more than asked for.
    """
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(probabilities).scatter(-1, order, ordered.cumsum(-1) - ordered)


FORMS = {"lac": least_ambiguous, "aps": adaptive}


def _on_cpu(
    scores: dict[str, Tensor],
    wrong: Tensor | None = None,
    nonconformity: dict[str, Tensor] | None = None,
    residuals: Tensor | None = None,
    errors: Tensor | None = None,
) -> Evidence:
    return Evidence(
        {name: score.cpu() for name, score in scores.items()},
        None if wrong is None else wrong.cpu(),
        {form: values.cpu() for form, values in (nonconformity or {}).items()},
        None if residuals is None else residuals.float().cpu(),
        None if errors is None else errors.float().cpu(),
    )
