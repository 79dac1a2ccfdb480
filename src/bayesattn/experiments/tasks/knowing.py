"""Figures of what a classifier knows of itself: likelihood and calibration with and without a temperature, selective risk, and how well
each score tells texts or images of other classes."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.experiments.tasks.base import Evaluation, HasModels, Predictor, Splits
from bayesattn.experiments.tasks.classification import auroc, figures
from bayesattn.prediction.calibration.calibrated import calibrate
from bayesattn.prediction.calibration.scores import scores_of
from bayesattn.prediction.calibration.temperature import TemperatureFit
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.support.annotations import Float
from bayesattn.weight_space.packing import Packed

ACCEPTED = 0.95
"""Share of the inputs of known classes that are accepted where false acceptances are counted."""


def figures_of_knowing(predict: Predictor, splits: Splits, outside: dict[str, Tensor]) -> Evaluation:
    """All figures of one fitted model, or of several together. Nothing is chosen on the test or on what is `outside`.

    `_t` is with the temperature that the validation examples give. `auroc_SET_SCORE` and `accepted_SET_SCORE` are of the inputs SET by
    SCORE: the chance that one of them scores higher than a test input, and the share that is accepted where 95 % of the test inputs are.
    """
    inputs, labels = splits.test
    start = time.process_time()
    prediction = predict(inputs)
    seconds = time.process_time() - start
    assert isinstance(prediction, CategoricalPrediction)
    samples = prediction.samples.cpu()
    held_out = predict(splits.validation[0])
    fit = TemperatureFit("categorical")
    fit.add([held_out.samples.cpu()], splits.validation[1])
    temperature = fit.fitted()
    found: dict[str, float] = {
        "temperature": temperature.value,
        "validation_nll": -held_out.log_prob(splits.validation[1].to(held_out.samples.device)).mean().item(),
        "predict_seconds": seconds,
    }
    for suffix, logits in (("", samples), ("_t", samples / temperature.value)):
        answers = CategoricalPrediction(logits)
        found |= {f"{name}{suffix}": value for name, value in figures(answers.mean, labels).items()}
        found[f"nll{suffix}"] = -answers.log_prob(labels).mean().item()
        found[f"aurc{suffix}"] = metrics.aurc(answers.mean.amax(-1), (answers.label != labels).float()).item()
    if len(samples) > 1:
        found["disagreement"] = (samples[0].argmax(-1) != samples[1].argmax(-1)).float().mean().item()
    source: object = predict
    models = source.models if isinstance(source, HasModels) else []
    distances = _distances(models, splits, {"": inputs, **outside})
    inside = {**scores_of([samples], "categorical"), **distances[""]}
    for name, others in outside.items():
        scores = {**scores_of([predict(others).samples.cpu()], "categorical"), **distances[name]}
        for score, values in scores.items():
            found[f"auroc_{name}_{score}"] = auroc(inside[score], values)
            found[f"accepted_{name}_{score}"] = false_acceptance(inside[score], values)
    return Evaluation(found)


def false_acceptance(inside: Float[Tensor, " n"], outside: Float[Tensor, " m"]) -> float:
    """The share of outside inputs whose score is not above that of 95 % of the inside ones."""
    limit = inside.double().sort().values[max(0, round(ACCEPTED * len(inside)) - 1)]
    return (outside.double() <= limit).double().mean().item()


def _distances(models: list[nn.Module], splits: Splits, sets: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Set → score → distances of the features of the point estimate, the mean over members."""
    sums: dict[str, dict[str, Tensor]] = {name: {} for name in sets}
    networks = [each for model in models for each in _networks(model)]
    for model in networks:
        device = next(model.parameters()).device
        on_device = lambda part, device=device: tuple(tensor.to(device) for tensor in part)  # noqa: E731
        knowing: Any = calibrate(
            model,
            on_device(splits.validation),
            train=on_device(splits.train),
            likelihood="categorical",
            point_estimate=True,
            max_rows=256,
        )
        for name, inputs in sets.items():
            answer = knowing.predict(inputs.to(device), max_rows=256)
            for score in ("distance", "relative_distance", "process_variance"):
                value = answer.score(score).cpu() / len(networks)
                sums[name][score] = sums[name].get(score, torch.zeros_like(value)) + value
    return sums


def _networks(model: nn.Module) -> list[nn.Module]:
    """The members of a packed model, which have features of their own; else the model itself."""
    return [model.network(index) for index in range(len(model))] if isinstance(model, Packed) else [model]
