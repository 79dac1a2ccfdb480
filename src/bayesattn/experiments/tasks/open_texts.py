"""Texts of known classes among texts of others, with a small pretrained encoder: CLINC150, Banking77, 20 Newsgroups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.experiments.data.open_texts import FILES, Labelled, OpenTexts, SetName, load_open_texts
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task, Training
from bayesattn.experiments.tasks.batching import by_length
from bayesattn.experiments.tasks.knowing import figures_of_knowing
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.text_inputs import MINILM, encoded, lengths, path_of
from bayesattn.support import checks

CLASSES: dict[SetName, int] = {"clinc150": 150, "banking77": 77, "newsgroups": 16}


@dataclass(frozen=True)
class OpenTextOptions:
    """The pretrained encoder, and what of it and of the data is used."""

    model: str = MINILM
    """all-MiniLM-L6-v2 from the package registry, or what `from_pretrained` of transformers takes: a folder, a name on the Hub."""
    max_length: int = 64
    """Tokens of a text; longer ones are cut."""
    frozen_layers: int = 0
    """Lowest layers that stay as pretrained, without noise and dropout; they are run once, and what they give is kept in the cache."""
    dropout: float = 0.1
    """Dropout of the encoder in training, unless the method has a dropout of its own."""
    train_examples: int | None = None
    """Use so many training examples, drawn at random; None: all."""


class OpenTextTask(Task):
    """Classes of texts. The test texts are of these classes; `evaluate` also looks at texts that are of none."""

    likelihood = "categorical"
    training = Training(epochs=6, samples=8, batch_size=32, learning_rate=2e-4)

    def __init__(self, options: OpenTextOptions, name: SetName):
        checks.whole("max_length", options.max_length, minimum=8)
        checks.whole("frozen_layers", options.frozen_layers, minimum=0)
        checks.fraction("dropout", options.dropout)
        if options.train_examples is not None:
            checks.whole("train_examples", options.train_examples, minimum=10)
        self.options = options
        self.dropout = options.dropout
        self.name: SetName = name
        self.files = FILES[name]

    def load(self) -> Splits:
        texts = load_open_texts(self.name)
        order = torch.randperm(len(texts.train), generator=torch.Generator().manual_seed(0))
        chosen = [texts.train[index] for index in order[: self.options.train_examples].tolist()]
        return Splits(
            self._encoded(chosen, texts, "train"),
            self._encoded(texts.validation, texts, "validation"),
            _short_first(self._encoded(texts.test, texts, "test")),
        )

    def build(self, dropout: float) -> nn.Module:
        from bayesattn.experiments.models.text import TextModel

        options = self.options
        return TextModel(path_of(options.model), CLASSES[self.name], dropout or self.dropout, options.frozen_layers)

    def batches(self, train: Examples, order: Tensor, size: int) -> Sequence[Tensor]:
        return by_length(lengths(train[0]), order, size)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        inputs, labels = batch
        return F.cross_entropy(model(inputs), labels, reduction="none")

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        outside = load_open_texts(self.name).outside
        inputs = {name: _short_first((self._inputs(texts, name),))[0] for name, texts in outside.items()}
        return figures_of_knowing(
            predict, Splits(*map(_short_first, (splits.train, splits.validation, splits.test))), inputs
        )

    def _encoded(self, part: Labelled, texts: OpenTexts, name: str) -> Examples:
        numbers = {label: number for number, label in enumerate(texts.classes)}
        labels = torch.tensor([numbers[label] for _, label in part])
        return self._inputs([text for text, _ in part], name), labels

    def _inputs(self, texts: list[str], name: str) -> Tensor:
        options = self.options
        return encoded(options.model, texts, None, options.max_length, options.frozen_layers, f"{self.name}-{name}")


def _short_first(examples: Examples) -> Examples:
    """Sorted by length: predictions are made of neighbours together, and little of them is padding then."""
    order = lengths(examples[0]).argsort(stable=True)
    return tuple(tensor[order] for tensor in examples)


_WORDS: dict[SetName, str] = {
    "clinc150": "CLINC150: 150 intents of queries; 1,000 out-of-scope queries outside",
    "banking77": "Banking77: 77 intents of customers; CLINC150's out-of-scope queries outside",
    "newsgroups": "20 Newsgroups: 16 groups, without headers, quotes and footers; four others outside",
}
for _name, _what in _WORDS.items():
    _options = OpenTextOptions(max_length=128) if _name == "newsgroups" else OpenTextOptions()
    TASKS.add(_name, f"{_what}. MiniLM, fine-tuned", _options, partial(OpenTextTask, name=_name))
