"""`calibrate`: what held-out data say about a model, and predictions that go by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.prediction.calibration.answers import ANSWERS
from bayesattn.prediction.calibration.distance import FeatureDistance, FeatureSums
from bayesattn.prediction.calibration.evidence import Evidence, Positions, evidence_of, joined, positions_that_count
from bayesattn.prediction.calibration.examples import batches, check_outputs, checked_labels
from bayesattn.prediction.calibration.head import check_head, find_head, outputs_and_features
from bayesattn.prediction.calibration.random_features import PrecisionSums, ProcessVariance, RandomFeatures
from bayesattn.prediction.calibration.saving import read_state, write_state
from bayesattn.prediction.calibration.scores import scores_of
from bayesattn.prediction.calibration.temperature import Temperature, TemperatureFit, tempered
from bayesattn.prediction.calling import default_output, map_batch
from bayesattn.prediction.likelihood import LIKELIHOODS, Likelihood, likelihood_of
from bayesattn.prediction.sampled import output_tensors, sampled_outputs
from bayesattn.support import checks
from bayesattn.support.tensor_file import check_fingerprint

RANDOM_FEATURES = 1024
"""Of the Gaussian process whose variance is a score."""


@dataclass(frozen=True)
class Settings:
    """How the model is run; the same for held-out and for new data, or the promises would not hold."""

    likelihood: Likelihood
    samples: int
    random: bool
    """Whether anything in the model is; if not, one pass of the point estimate serves."""
    dropout: bool
    head: str | None
    """The layer whose input the distance is of."""


@dataclass(frozen=True)
class CalibratedModel:
    """A model, and what held-out data say about it. Made by `ba.calibrate`, or by `ba.load_calibration`."""

    model: nn.Module
    settings: Settings
    temperature: Temperature
    features: FeatureDistance | None
    process: ProcessVariance | None
    evidence: Evidence
    output: Callable[[Any], Any] | None = None

    def predict(
        self,
        inputs: Any,
        samples: int | None = None,
        *,
        max_rows: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        """The prediction of `ba.predict`, after the temperature, with scores, p-values, abstention and conformal sets.

        Args:
            inputs: as `ba.predict` takes them.
            samples: by default as many as at calibration. Another number would be another predictor, of which the held-out data say
                nothing: it is refused, unless nothing in the model is random.
            max_rows, generator: see `ba.predict`.
        """
        settings = self.settings
        if samples is not None and checks.whole("samples", samples) != settings.samples and settings.random:
            raise ValueError(
                f"samples={samples}, but held-out data were predicted with {settings.samples}, and thresholds and temperature are for "
                f"that: leave samples= out, or calibrate with samples={samples}."
            )
        runner = _Runner(self.model, settings, self.output, max_rows, generator)
        raw, extra = runner.run(inputs, self.features, self.process)
        scores = {**scores_of(raw, settings.likelihood), **extra}
        samples_and_scales = tempered(raw, settings.likelihood, self.temperature.value)
        return ANSWERS[settings.likelihood](*samples_and_scales, scores=scores, evidence=self.evidence, raw=raw)

    def save(self, path: str | Path) -> Path:
        """Write all that was fitted to a file, or as calibration.pt into a folder, such as one of `save_pretrained`.

        The model itself is saved as ever; `ba.load_calibration(model, path)` joins them again.
        """
        return write_state(path, self)

    def __str__(self) -> str:
        settings, found = self.settings, self.temperature
        verb = "temperature" if settings.likelihood != "gaussian" else "factor of standard deviations"
        lines = [
            f"{type(self.model).__name__}, {settings.likelihood}, judged on {len(self.evidence)} held-out examples"
        ]
        if settings.likelihood != "values":
            gain = f"held-out NLL falls by {found.gain:.4f} ± {found.error:.4f}"
            lines.append(f"{verb} {found.value:.2f}: {gain}{'' if found.moved else ', not enough to move'}")
        if self.features is not None:
            classes, size = self.features.means.shape
            lines.append(f"distance of the {size} features before {settings.head!r} from {classes} classes")
        lines.append(f"{settings.samples} samples" if settings.random else "one pass: nothing in the model is random")
        return "\n".join(lines)


def calibrate(
    model: nn.Module,
    held_out: Any,
    *,
    train: Any = None,
    samples: int = 8,
    likelihood: Likelihood | None = None,
    output: Callable[[Any], Any] | None = None,
    head: str | None = None,
    dropout: bool = False,
    point_estimate: bool = False,
    positions: Positions = "one",
    max_rows: int | None = None,
    generator: torch.Generator | None = None,
) -> CalibratedModel:
    """What `held_out` data, which the model was not trained on, say about a model that `ba.predict` takes, converted or not.

    Fitted are a temperature (it stays 1 unless the held-out likelihood gains more than its standard error), thresholds for
    abstention, conformal sets and p-values; and with `train`, Gaussians of the features, for the distance.

    Args:
        model: a trained model. It is left as it is.
        held_out: (inputs, labels), a mapping with "labels", or batches of those such as a DataLoader gives. Label -100: does not count.
        train: training data, in the same forms, run once. Without it there is no distance.
        samples: sampled passes; 1 pass is made if nothing in the model is random.
        likelihood, output, dropout, point_estimate, max_rows, generator: see `ba.predict`.
        head: name of the layer whose input are the features; by default the innermost one whose output is the model's.
        positions: "one": of outputs at several positions (tokens) one of each example is judged, because those of one example are not
            independent. "all": every position, for nodes of a graph, or where examples are few and their tokens are taken to be.

    >>> import torch, bayesattn as ba
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    >>> x, y = torch.randn(400, 2), torch.randint(3, (400,))
    >>> knowing = ba.calibrate(model, (x[200:], y[200:]), train=(x[:200], y[:200]))
    >>> answer = knowing.predict(torch.tensor([[0.0, 0.0], [90.0, -70.0]]))
    >>> answer.outlier < 0.05, answer.sets(coverage=0.9).shape
    (tensor([False,  True]), torch.Size([2, 3]))
    """
    checks.whole("samples", samples)
    if max_rows is not None:
        checks.whole("max_rows", max_rows)
    checks.one_of("positions", positions, ("one", "all"))
    if likelihood is not None:
        checks.one_of("likelihood", likelihood, LIKELIHOODS)
    if head is not None:
        check_head(model, head)
        if train is None:
            raise ValueError(
                f"head={head!r} is where the features for the distance are taken, which train= is needed for."
            )
    if point_estimate and dropout:
        raise ValueError("point_estimate=True has no noise: leave dropout=True out, or sample.")
    parts = batches(held_out, "held_out")
    first = next(parts)
    guess = Settings(likelihood or "categorical", 1 if point_estimate else samples, not point_estimate, dropout, head)
    settings = _settled(model, first[0], guess, likelihood, output, max_rows)
    features, process = None, None
    if train is not None:
        settings, features, process = _fit_features(model, first[0], settings, train, output, max_rows)
    runner = _Runner(model, settings, output, max_rows, generator)
    fit = TemperatureFit(settings.likelihood)
    lots = torch.Generator().manual_seed(0)
    evidence: list[Evidence] = []
    for inputs, given in (pair for source in ([first], parts) for pair in source):
        outputs, extra = runner.run(inputs, features, process)
        check_outputs(outputs, "held_out")
        labels = checked_labels(given, outputs[0][0], settings.likelihood, "held_out")
        chosen = positions_that_count(labels, positions, lots) if settings.likelihood == "categorical" else None
        evidence.append(evidence_of(outputs, labels, settings.likelihood, extra, chosen))
        if settings.likelihood != "values":
            fit.add(outputs, labels)
    found = joined(evidence)
    if not len(found):
        raise ValueError("held_out: every label is -100, so nothing counts.")
    temperature = Temperature(1.0, 0.0, 0.0) if settings.likelihood == "values" else fit.fitted()
    return CalibratedModel(model, settings, temperature, features, process, found, output)


def load_calibration(
    model: nn.Module, path: str | Path, *, output: Callable[[Any], Any] | None = None
) -> CalibratedModel:
    """What `CalibratedModel.save` wrote, for the same model again.

    Args:
        model: the model that was calibrated, with the weights and the dtype it had then; others are refused.
        path: the file, or the folder it is in.
        output: what `ba.calibrate` was given; functions are not saved.
    """
    state = read_state(path)
    remedy = "load the model that was calibrated, or calibrate this one"
    check_fingerprint(model, state["weights"], path, remedy)
    settings = Settings(**state["settings"])
    if settings.head is not None:
        check_head(model, settings.head)
    return CalibratedModel(
        model,
        settings,
        Temperature(**state["temperature"]),
        None if state["features"] is None else FeatureDistance(**state["features"]),
        None if state["process"] is None else ProcessVariance(**state["process"]),
        Evidence(**state["evidence"]),
        output,
    )


class _Runner:
    """Runs the model as its settings say."""

    def __init__(
        self,
        model: nn.Module,
        settings: Settings,
        output: Callable[[Any], Any] | None,
        max_rows: int | None,
        generator: torch.Generator | None,
    ):
        self.model = model
        self.settings = settings
        self.output = output or default_output
        self.max_rows = max_rows
        self.generator = generator

    def take(self, result: Any) -> tuple[Tensor, ...]:
        return output_tensors(self.output(result), self.settings.likelihood)

    def run(
        self, inputs: Any, distance: FeatureDistance | None, process: ProcessVariance | None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Outputs, [samples, batch, ...], and scores of the features. These are the point estimate's, whose pass alone has no noise."""
        if distance is None or process is None:
            return self.sampled(inputs), {}
        outputs, features = self.observed(inputs)
        if self.settings.random:
            outputs = self.sampled(inputs)
        found = {"distance": distance.to_classes(features), "process_variance": process(features)}
        if distance.background is not None:
            found["relative_distance"] = distance.relative(features)
        if self.settings.likelihood != "categorical":  # one row is one example
            found = {name: each.reshape(len(each), each.shape[1:].numel()).mean(1) for name, each in found.items()}
        return outputs, found

    def sampled(self, inputs: Any) -> list[Tensor]:
        settings = self.settings
        return sampled_outputs(
            self.model,
            inputs,
            settings.samples,
            self.take,
            dropout=settings.dropout,
            point_estimate=not settings.random,
            max_rows=self.max_rows,
            generator=self.generator,
        )

    def observed(self, inputs: Any) -> tuple[list[Tensor], Tensor]:
        assert self.settings.head is not None
        return outputs_and_features(self.model, inputs, self.take, self.settings.head, self.max_rows)


def _settled(
    model: nn.Module,
    inputs: Any,
    guess: Settings,
    likelihood: Likelihood | None,
    output: Callable[[Any], Any] | None,
    max_rows: int | None,
) -> Settings:
    """The settings, with what a first run of a few examples shows: the likelihood, and whether anything is random."""
    few = map_batch(inputs, 0, lambda tensor: tensor[:8])
    outputs = _Runner(model, guess, output, max_rows, None).sampled(few)
    kind: Likelihood = likelihood or likelihood_of(model, outputs[0])
    if kind == "bernoulli" and outputs[0].dim() != 3:
        raise ValueError(
            f"Logits of labels that may hold together are [batch, labels] here, the model gives {tuple(outputs[0].shape[1:])}."
        )
    random = guess.random and any(not torch.equal(each[:1].expand_as(each), each) for each in outputs)
    if guess.dropout and not random:
        raise ValueError("dropout=True, but the samples are all the same.")
    return Settings(kind, guess.samples if random else 1, random, guess.dropout, guess.head)


def _fit_features(
    model: nn.Module,
    inputs: Any,
    settings: Settings,
    train: Any,
    output: Callable[[Any], Any] | None,
    max_rows: int | None,
) -> tuple[Settings, FeatureDistance, ProcessVariance]:
    """One pass over the training data. The settings get the head's name if they have none."""
    runner = _Runner(model, settings, output, max_rows, None)
    outputs = 2 if settings.likelihood == "gaussian" else 1
    head = settings.head or find_head(model, inputs, runner.take, outputs)
    settings = Settings(settings.likelihood, settings.samples, settings.random, settings.dropout, head)
    runner = _Runner(model, settings, output, max_rows, None)
    sums: FeatureSums | None = None
    precision: PrecisionSums | None = None
    for part, given in batches(train, "train"):
        found, features = runner.observed(part)
        check_outputs(found, "train")
        labels = checked_labels(given, found[0][0], settings.likelihood, "train")
        of_classes = settings.likelihood == "categorical"
        if of_classes and features.shape[:-1] != labels.shape:
            raise ValueError(
                f"head={head!r} takes features {tuple(features.shape)}, which are not one vector for each of the labels "
                f"{tuple(labels.shape)}: name another layer."
            )
        if sums is None or precision is None:
            sums = FeatureSums(found[0].shape[-1] if of_classes else 1)
            own = getattr(
                model.get_submodule(head), "random_features", None
            )  # of a head that is a Gaussian process itself
            random = RandomFeatures.drawn(features.shape[-1], RANDOM_FEATURES) if own is None else own()
            precision = PrecisionSums(random)
        classes = labels.flatten() if of_classes else torch.zeros(features.shape[:-1].numel(), dtype=torch.long)
        counted = (classes >= 0).to(features.device)
        rows = features.flatten(0, -2)[counted]
        sums.add(rows, classes[classes >= 0])
        precision.add(rows)
    assert sums is not None
    assert precision is not None
    return settings, sums.fitted(), precision.fitted()
