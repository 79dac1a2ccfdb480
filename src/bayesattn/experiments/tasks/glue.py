"""Eight tasks of GLUE with a small pretrained encoder (BAM, table 5): its score, calibration, selective prediction, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.glue import FILES, LABELS, Sentences, TaskName, load_glue
from bayesattn.experiments.registry import added_later
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task, Training
from bayesattn.experiments.tasks.batching import by_length
from bayesattn.experiments.tasks.classification import figures
from bayesattn.experiments.tasks.knowing import figures_of_knowing
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.text_inputs import MINILM, encoded, lengths, path_of
from bayesattn.prediction.predictions import CategoricalPrediction, GaussianPrediction
from bayesattn.support import checks

HELD_OUT = 500
"""Most training examples that validate and are not trained on: GLUE's dev examples are the test."""
LEVELS = (0.5, 0.9)
"""Of the intervals of a regression."""
COVERAGES = (0.5, 0.8, 0.9, 1.0)
"""At which the risk of selective prediction is kept."""


@dataclass(frozen=True)
class GlueOptions:
    """The pretrained encoder, and what of it and of the data is used."""

    model: str = MINILM
    """all-MiniLM-L6-v2 from the package registry, or what `from_pretrained` of transformers takes: a folder, a name on the Hub."""
    max_length: int = 128
    """Tokens of a text or pair; longer ones are cut."""
    frozen_layers: int = 0
    """Lowest layers that stay as pretrained, without noise and dropout; they are run once, and what they give is kept in the cache."""
    dropout: float = 0.1
    """Dropout of the encoder in training, unless the method has a dropout of its own."""
    train_examples: int | None = None
    """Use so many training examples, drawn at random; None: all."""
    classifier_dropout: float | None = added_later(None)
    """Dropout before the head; None: that of the encoder."""
    knowing: bool = added_later(False)
    """Of CoLA: test on the half of the dev sentences whose sources are trained on, with every score for the other half, which is of
    sources that are not; and the figures of what a model knows of itself instead of GLUE's."""


class GlueTask(Task):
    """One of the eight tasks. STS-B is a regression with a Gaussian likelihood, MNLI has three classes, the others have two."""

    training = Training(epochs=3, samples=20, batch_size=32, learning_rate=5e-5)

    def __init__(self, options: GlueOptions, name: TaskName):
        checks.whole("max_length", options.max_length, minimum=8)
        checks.whole("frozen_layers", options.frozen_layers, minimum=0)
        checks.fraction("dropout", options.dropout)
        if options.classifier_dropout is not None:
            checks.fraction("classifier_dropout", options.classifier_dropout)
        if options.train_examples is not None:
            checks.whole("train_examples", options.train_examples, minimum=10)
        if options.knowing and name != "CoLA":
            raise ValueError(f"knowing=True is for CoLA, whose sentences have sources, not for {name}.")
        self.options = options
        self.dropout = options.dropout
        self.name: TaskName = name
        self.files = tuple(FILES[name].values())
        self.regression = name == "STS-B"
        self.likelihood = "gaussian" if self.regression else "categorical"

    def load(self) -> Splits:
        train, test = load_glue(self.name, "train"), load_glue(self.name, "dev")
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
        order = order[: self.options.train_examples]
        held = order[: min(HELD_OUT, len(order) // 10)]
        inputs, labels = self._encoded(train, "train", order)
        chosen = torch.arange(len(test)) if not self.options.knowing else _of_known_sources(train, test, True)
        dev, dev_labels = self._encoded(test, "dev", chosen)
        short_first = lengths(dev).argsort(stable=True)  # predictions are made of neighbours together: little padding
        return Splits(
            (inputs[len(held) :], labels[len(held) :]),
            (inputs[: len(held)], labels[: len(held)]),
            (dev[short_first], dev_labels[short_first]),
        )

    def build(self, dropout: float) -> nn.Module:
        from bayesattn.experiments.models.text import TextModel

        options = self.options
        return TextModel(
            path_of(options.model),
            len(LABELS.get(self.name, ("0", "1"))),
            dropout or self.dropout,
            options.frozen_layers,
            self.regression,
            options.classifier_dropout,
        )

    def batches(self, train: Examples, order: Tensor, size: int) -> Sequence[Tensor]:
        return by_length(lengths(train[0]), order, size)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        inputs, labels = batch
        output: Any = model(inputs)
        if self.regression:
            mean, scale = output
            return F.gaussian_nll_loss(mean, labels, scale.square(), full=True, reduction="none")
        return F.cross_entropy(output, labels, reduction="none")

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        if self.options.knowing:
            return self._of_knowing(predict, splits)
        inputs, labels = splits.test
        point, prediction = predict(inputs, point_estimate=True), predict(inputs)
        if isinstance(prediction, GaussianPrediction):
            found = _of_regression(prediction, labels)
            found.metrics["score_of_point_estimate"] = _correlations(point.mean, labels)["score"]
        else:
            assert isinstance(prediction, CategoricalPrediction)
            found = _of_classes(prediction, labels, self.name)
            found.metrics["score_of_point_estimate"] = _scores(point.mean.argmax(-1), labels, self.name)["score"]
        held_out, held_labels = splits.validation
        found.metrics["validation_nll"] = -predict(held_out).log_prob(held_labels).mean().item()
        return found

    def _of_knowing(self, predict: Predictor, splits: Splits) -> Evaluation:
        train, dev = load_glue(self.name, "train"), load_glue(self.name, "dev")
        inputs, labels = self._encoded(dev, "dev", _of_known_sources(train, dev, False))
        found = figures_of_knowing(predict, splits, {"domain": inputs})
        prediction = predict(inputs)
        found.metrics.update({f"{name}_domain": value for name, value in figures(prediction.mean, labels).items()})
        found.metrics["nll_domain"] = -prediction.log_prob(labels).mean().item()
        return found

    def _encoded(self, sentences: Sentences, split: str, chosen: Tensor) -> Examples:
        """The chosen texts as the model takes them, and their labels."""
        options, indices, seconds = self.options, chosen.tolist(), sentences.seconds
        inputs = encoded(
            options.model,
            [sentences.texts[index] for index in indices],
            None if seconds is None else [seconds[index] for index in indices],
            options.max_length,
            options.frozen_layers,
            f"{self.name}-{split}",
        )
        return inputs, torch.tensor(sentences.labels)[chosen]


def _of_known_sources(train: Sentences, test: Sentences, known: bool) -> Tensor:
    """The places of the test sentences whose source is one of the training sentences', or of the others."""
    sources = set(train.sources or ())
    places = [place for place, source in enumerate(test.sources or ()) if (source in sources) == known]
    if not places:
        raise DataError(f"{FILES['CoLA']['dev'].path} has no sentence of {'a known' if known else 'another'} source.")
    return torch.tensor(places)


def _of_classes(prediction: CategoricalPrediction, labels: Tensor, name: str) -> Evaluation:
    samples, mean = prediction.samples, prediction.mean
    found = figures(mean, labels) | {"nll": -prediction.log_prob(labels).mean().item()}
    right = (mean.argmax(-1) == labels).float()
    found |= _scores(mean.argmax(-1), labels, name)
    # the t-test needs two samples: a model without noise gives the same one twice, and is certain of everything
    twice = samples if len(samples) > 1 else samples.expand(2, -1, -1)
    for threshold in (0.01, 0.05, 0.1):
        found[f"pavpu_{threshold:g}"] = metrics.pavpu(twice, labels, threshold=threshold).value
        found[f"pavpu_two_sample_{threshold:g}"] = metrics.pavpu(
            twice, labels, threshold=threshold, test="welch", on="probs"
        ).value
    return _selective(found, mean.amax(-1), 1 - right)


def _scores(chosen: Tensor, labels: Tensor, name: str) -> dict[str, float]:
    """What GLUE scores the task by, as "score", and what it is made of."""
    from torchmetrics.functional import matthews_corrcoef  # takes seconds
    from torchmetrics.functional.classification import binary_f1_score

    if name == "CoLA":
        return {"score": matthews_corrcoef(chosen, labels, task="binary").item()}
    accuracy = (chosen == labels).float().mean().item()
    if name not in ("MRPC", "QQP"):
        return {"score": accuracy}
    f1 = binary_f1_score(chosen, labels).item()
    # BAM does not say how it scores QQP: accuracy, as ALBERT does
    return {"f1_of_paraphrases": f1, "score": (accuracy + f1) / 2 if name == "MRPC" else accuracy}


def _correlations(mean: Tensor, values: Tensor) -> dict[str, float]:
    from torchmetrics.functional import pearson_corrcoef, spearman_corrcoef  # takes seconds

    pearson, spearman = pearson_corrcoef(mean, values).item(), spearman_corrcoef(mean, values).item()
    return {"score": (pearson + spearman) / 2, "pearson": pearson, "spearman": spearman}


def _of_regression(prediction: GaussianPrediction, values: Tensor) -> Evaluation:
    mean = prediction.mean
    found = _correlations(mean, values) | {
        "rmse": (mean - values).square().mean().sqrt().item(),
        "nll": -prediction.log_prob(values).mean().item(),
    }
    for level in LEVELS:
        lower, upper = prediction.interval(level)
        found[f"coverage_{level:g}"] = ((lower <= values) & (values <= upper)).float().mean().item()
        found[f"width_{level:g}"] = (upper - lower).mean().item()
    return _selective(found, -prediction.variance, (mean - values).square())


def _selective(found: dict[str, float], confidence: Tensor, loss: Tensor) -> Evaluation:
    """With the area under risk against coverage, and points of that curve."""
    risk = metrics.selective_risk(confidence, loss)
    found["aurc"] = risk.mean().item()
    curve = {f"{coverage:g}": risk[max(0, round(coverage * len(risk)) - 1)].item() for coverage in COVERAGES}
    return Evaluation(found, {"risk_at_coverage": curve})


_QUESTIONS: dict[TaskName, str] = {
    "CoLA": "is the sentence acceptable?",
    "SST-2": "is the review positive?",
    "RTE": "does the second sentence follow?",
    "MRPC": "do both sentences say the same?",
    "STS-B": "how similar are two sentences, 0 to 5?",
    "MNLI": "does the second sentence follow, contradict, or neither?",
    "QNLI": "does the sentence answer the question?",
    "QQP": "do both questions ask the same?",
}
for _name, _words in _QUESTIONS.items():
    TASKS.add(
        _name.lower().replace("-", ""),
        f"GLUE's {_name}: {_words} MiniLM, fine-tuned",
        GlueOptions(),
        partial(GlueTask, name=_name),
    )
