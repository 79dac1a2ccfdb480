"""What the captioning tasks share: Att2in, perplexity, captions by greedy and beam search and how good they are, noise on the features."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.alignment import Objective, Soft
from bayesattn.experiments.data.captions import Captions
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.data.subwords import BEGIN, END, PAD, UNKNOWN, padded, trimmed
from bayesattn.experiments.data.vocabulary import Vocabulary
from bayesattn.experiments.models.captioner import Captioner
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task
from bayesattn.experiments.tasks.caption_scores import caption_scores
from bayesattn.posteriors import Posterior
from bayesattn.support import checks
from bayesattn.support.annotations import Float, Int, Shaped

SHOWN = 5
"""Captions that are kept with a result."""
AT_ONCE = 100
"""Images that are described at a time."""


@dataclass(frozen=True)
class CaptionOptions:
    """Words, the model's sizes, and how it is tested."""

    least: int = 5
    """Words that fewer training captions have are not learned."""
    longest_caption: int = 16
    """Words of a training caption that are read, as in the reference's code; and the most words of a caption that is made."""
    dim: int = 256
    """Units of the LSTM, and width of embeddings and of the attention's tanh layer."""
    dropout: float = 0.5
    """Dropout of the base model."""
    beam: int = 3
    """Hypotheses of the beam search."""
    noise: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0)
    """Variances of the Gaussian noise on the features of the test images, beside none; those captions are greedy."""
    test_examples: int | None = None
    """Use the first so many test images; None: all."""

    def __post_init__(self) -> None:
        for name in ("least", "longest_caption", "dim", "beam"):
            checks.whole(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)
        for variance in self.noise:
            checks.positive("noise", variance, "It is a variance; without noise is always tested.")
        if self.test_examples is not None:
            checks.whole("test_examples", self.test_examples)


@dataclass(frozen=True)
class Prepared:
    """Words as numbers, the parts as tensors (one example for each caption), and the test images' captions."""

    words: Vocabulary
    regions: Regions
    splits: Splits
    test: Captions


class Described:
    """What a fitted model makes of images, by its point estimate.

    Args:
        model: a fitted model.
        regions: of all images.
        images: the numbers of those to describe.
        variance: of the noise on the features of each of them.
    """

    def __init__(
        self,
        model: Captioner,
        regions: Regions,
        images: Int[Tensor, " n"],
        variance: Float[Tensor, " n"] | None = None,
    ):
        self.model = model.eval()
        self.regions = regions
        self.images = images
        self.variance = variance

    def captions(self, width: int, longest: int) -> list[list[int]]:
        """The best caption of known words of each image that a beam of this width finds; 1 is greedy."""
        found = []
        for places in torch.arange(len(self.images)).split(AT_ONCE):
            hypotheses = self.model.caption(
                *self._of(places), width=width, max_length=longest + 1, forbidden=(UNKNOWN,)
            )
            found += hypotheses.best()
        return found

    @torch.no_grad()
    def perplexity(self, captions: Shaped[Tensor, "n length"]) -> float:
        """Of a word of the captions, one for each image, the end included."""
        total, tokens = 0.0, 0
        for places in torch.arange(len(self.images)).split(AT_ONCE):
            part = trimmed(captions[places]).to(self.images.device)
            total += float(self.model(*self._of(places), part).sum(dtype=torch.float64))
            tokens += int((part[:, 1:] != PAD).sum())
        return math.exp(total / tokens)

    def _of(self, places: Tensor) -> Iterator[Tensor]:
        variance = None if self.variance is None else self.variance[places]
        return (tensor.to(self.images.device) for tensor in self.regions.of(self.images[places], variance))


class CaptionTask(Task):
    """Describe images. An example is an image and one of its captions. Perplexity is that of a word, the end included."""

    likelihood = "categorical"
    point_estimate = True

    def __init__(self, options: CaptionOptions):
        self.options = options
        self.dropout = options.dropout

    @abstractmethod
    def read(self) -> tuple[dict[str, Captions], Regions]:
        """The parts "train", "validation" and "test", and the images' regions."""

    @cached_property
    def prepared(self) -> Prepared:
        """The data, made ready."""
        parts, regions = self.read()
        test = parts["test"].first(self.options.test_examples)
        words = Vocabulary.of([words for each in parts["train"].captions for words in each], self.options.least)

        def tensors(part: Captions, longest: int | None) -> Examples:
            counts = torch.tensor([len(each) for each in part.captions])
            images = regions.find(part.images, "the captions").repeat_interleave(counts)
            return images, padded([words.sentence(each[:longest]) for captions in part.captions for each in captions])

        splits = Splits(
            tensors(parts["train"], self.options.longest_caption),
            tensors(parts["validation"], None),
            tensors(test, None),
        )
        return Prepared(words, regions.standardised(splits.train[0].unique()), splits, test)

    def load(self) -> Splits:
        return self.prepared.splits

    def build(self, dropout: float) -> nn.Module:
        return self.build_with(Soft(), dropout)

    def build_with(self, attention: Posterior | Objective, dropout: float) -> nn.Module:
        dim = self.options.dim
        return Captioner(
            len(self.prepared.words),
            self.prepared.regions.dim,
            attention,
            embedding_dim=dim,
            hidden_dim=dim,
            attention_dim=dim,
            dropout=dropout or self.dropout,
            pad=PAD,
            bos=BEGIN,
            eos=END,
        )

    def lengths(self, train: Examples) -> Tensor:
        return (train[-1] != PAD).sum(1)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        images, captions = batch
        features, mask = self.prepared.regions.of(images)
        return model(features.to(images.device), mask.to(images.device), trimmed(captions)).sum(1)

    def predict(
        self, model: nn.Module, inputs: Any, samples: int, dropout: bool = False, point_estimate: bool = False
    ) -> Described:
        """Inputs: images and, if there is noise, the variance for each."""
        assert isinstance(model, Captioner)
        return Described(model, self.prepared.regions, *inputs)

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        options, prepared = self.options, self.prepared
        every, captions = splits.test
        images = prepared.regions.find(prepared.test.images, "the captions")
        described = predict((images,))
        assert isinstance(described, Described)
        beam = self.texts(described.captions(options.beam, options.longest_caption))
        greedy = self.texts(described.captions(1, options.longest_caption))
        references = prepared.test.captions
        found = {"perplexity": predict((every,)).perplexity(captions)} | caption_scores(beam, references)
        found |= {f"{name}_greedy": value for name, value in caption_scores(greedy, references).items()}
        for variance in options.noise:
            noisy = predict((images, torch.full((len(images),), variance)))
            made = self.texts(noisy.captions(1, options.longest_caption))
            found |= {f"{name}_noise_{variance:g}": value for name, value in caption_scores(made, references).items()}
        details = {
            "words": len(prepared.words),
            "captions": [
                {"image": image, "caption": " ".join(made), "reference": " ".join(wanted[0])}
                for image, made, wanted in list(zip(prepared.test.images, beam, references, strict=True))[:SHOWN]
            ],
        }
        return Evaluation(found, details)

    def texts(self, captions: Sequence[Sequence[int]]) -> list[list[str]]:
        """Captions as words."""
        return [self.prepared.words.decode(each) for each in captions]
