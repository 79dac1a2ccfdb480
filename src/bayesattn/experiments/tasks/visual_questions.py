"""What the tasks of visual questions share: data made ready, MCAN or the bottom-up model, soft accuracy, PAvPU, noise on the features."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.alignment import Objective, Soft, entropy_of_log_weights
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.glove import read_glove
from bayesattn.experiments.data.questions import Questions
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.data.subwords import PAD, UNKNOWN, padded, trimmed
from bayesattn.experiments.data.vocabulary import Vocabulary, words_of
from bayesattn.experiments.models.mcan import MCAN
from bayesattn.experiments.models.vqa import BottomUpVQA, Fusion
from bayesattn.experiments.registry import added_later
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task
from bayesattn.experiments.tasks.classification import calibration_error
from bayesattn.experiments.tasks.images import random_split
from bayesattn.posteriors import Posterior
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.prediction.sampled import predict
from bayesattn.support import checks
from bayesattn.support.annotations import Float, Shaped

THRESHOLD = 0.05
"""Of the p-value below which an answer counts as certain."""
AT_ONCE = 256
"""Questions whose regions are in memory at a time."""
SHOWN = 5
"""Answers that are kept with a result."""
NOBODY = -1
"""Stands for an answer that the model does not know, and for an annotator that there is not."""


@dataclass(frozen=True)
class QuestionOptions:
    """Words, answers, the model's sizes, and how it is tested."""

    model: Literal["mcan", "bottom-up"] = "mcan"
    """MCAN (BAM), or the bottom-up model with one attention over regions, which the objectives of latent alignment need (Deng et al.)."""
    dim: int = 128
    """Width of MCAN; of the LSTM, tanh and ReLU layers of the bottom-up model."""
    heads: int = 4
    """Heads of MCAN."""
    layers: int = 2
    """Layers of MCAN's encoder and decoder."""
    embedding_dim: int = 64
    """Width of word embeddings; of the answers that an inference network sees."""
    dropout: float = 0.1
    """Dropout of the base model."""
    longest_question: int = 14
    """Words of a question that are read."""
    least_answers: int = 1
    """Answers that fewer training questions have are not learned."""
    validation_share: float = 0.1
    """Share of the training images that validate."""
    noise: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0)
    """Variances of the Gaussian noise on the features of the test images, beside none (the paper: 5)."""
    test_examples: int | None = None
    """Use so many test questions, at equal distances (their order is not random: DAQUAR's first thousand are easy); None: all."""
    data_seed: int = 0
    """Which training images validate."""
    fusion: Fusion = added_later("product")
    """How the bottom-up model puts region and question together: "concatenation" (Deng et al., and the rows of table deng-1-vqa) or
    "product" (Anderson et al.)."""
    glove: str | None = added_later(None)
    """A file of GloVe's vectors, embedding_dim wide (such as glove.6B.300d.txt): words that it has start there, as in the papers."""

    def __post_init__(self) -> None:
        checks.one_of("model", self.model, ("mcan", "bottom-up"))
        checks.one_of("fusion", self.fusion, ("concatenation", "product"))
        for name in ("dim", "heads", "layers", "embedding_dim", "longest_question", "least_answers"):
            checks.whole(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)
        checks.fraction("validation_share", checks.positive("validation_share", self.validation_share))
        for variance in self.noise:
            checks.positive("noise", variance, "It is a variance; without noise is always tested.")
        if self.test_examples is not None:
            checks.whole("test_examples", self.test_examples)


@dataclass(frozen=True)
class Prepared:
    """Words and answers as numbers, the parts as tensors, and the test questions as text."""

    words: Vocabulary
    answers: tuple[str, ...]
    regions: Regions
    splits: Splits
    test: Questions


@dataclass(frozen=True)
class PointAnswers(CategoricalPrediction):
    """The point estimate of the bottom-up model, and how sure it is of the region before the answer is known."""

    prior_entropy: Float[Tensor, " n"]
    """Of the weights of the regions, in nats."""


class QuestionTask(Task):
    """Answer questions on images. An example is an image, the words of a question, and the answer of each annotator.

    An answer's likelihood is that of a random annotator. Accuracy is soft where there are several annotators: min(agreeing / 3, 1).
    """

    likelihood = "categorical"

    def __init__(self, options: QuestionOptions):
        self.options = options
        self.dropout = options.dropout

    @abstractmethod
    def read(self) -> tuple[Questions, Questions, Regions]:
        """The questions to train and to test on, and the images' regions."""

    @cached_property
    def prepared(self) -> Prepared:
        """The data, made ready."""
        options = self.options
        train, test, regions = self.read()
        if options.test_examples is not None:
            tested = {place * len(test) // options.test_examples for place in range(options.test_examples)}
            test = test.where([place in tested for place in range(len(test))])
        counts = Counter(answer for given in train.answers for answer in set(given))
        answers = sorted(
            (each for each in counts if counts[each] >= options.least_answers), key=lambda a: (-counts[a], a)
        )
        if len(answers) < 2:
            raise DataError(
                f"least_answers={options.least_answers} leaves {len(answers)} of {len(counts)} answers: take a smaller one."
            )
        places = {answer: place for place, answer in enumerate(answers)}
        train = train.where([any(answer in places for answer in given) for given in train.answers])
        words = Vocabulary.of([words_of(text) for text in train.texts])
        images = sorted(set(train.images))
        kept = max(1, round((1 - options.validation_share) * len(images)))
        chosen, _ = random_split((torch.arange(len(images)),), kept, options.data_seed)
        trained = {images[place] for place in chosen[0].tolist()}
        if len(trained) == len(images):
            raise DataError(
                f"validation_share={options.validation_share} leaves none of {len(images)} images to validate."
            )

        def tensors(questions: Questions) -> Examples:
            found = [words.encode(words_of(text)[: options.longest_question]) or [UNKNOWN] for text in questions.texts]
            most = max(len(given) for given in questions.answers)
            given = [
                [places.get(a, NOBODY) for a in each] + [NOBODY] * (most - len(each)) for each in questions.answers
            ]
            return regions.find(questions.images, "the questions"), padded(found), torch.tensor(given)

        inside = [image in trained for image in train.images]
        splits = Splits(
            tensors(train.where(inside)), tensors(train.where([not mark for mark in inside])), tensors(test)
        )
        standardised = regions.standardised(splits.train[0].unique())
        return Prepared(words, tuple(answers), standardised, splits, test)

    def load(self) -> Splits:
        return self.prepared.splits

    def build(self, dropout: float) -> nn.Module:
        return self.build_with(Soft(), dropout)

    def build_with(self, attention: Posterior | Objective, dropout: float) -> nn.Module:
        model = self._built(attention, dropout)
        if self.options.glove is not None:
            words = self.prepared.words.words
            embedding = model.question.embedding.weight
            with torch.no_grad():
                for place, word in enumerate(words):
                    if word in self._glove:
                        embedding[place] = torch.tensor(self._glove[word])
        return model

    @cached_property
    def _glove(self) -> dict[str, list[float]]:
        assert self.options.glove is not None
        return read_glove(Path(self.options.glove), self.prepared.words.words, self.options.embedding_dim)

    def _built(self, attention: Posterior | Objective, dropout: float) -> MCAN | BottomUpVQA:
        options, prepared = self.options, self.prepared
        sizes = (len(prepared.words), len(prepared.answers), prepared.regions.dim)
        if options.model == "bottom-up":
            return BottomUpVQA(
                *sizes,
                attention,
                embedding_dim=options.embedding_dim,
                question_dim=options.dim,
                hidden_dim=options.dim,
                answer_dim=options.embedding_dim,
                fusion=options.fusion,
                dropout=dropout or self.dropout,
                pad=PAD,
            )
        if isinstance(attention, Objective) and not isinstance(attention, Soft):
            raise ValueError(
                f"MCAN attends in many layers and has no one alignment to train by {type(attention).__name__}: add --model bottom-up, or "
                "take a method of attention weights such as bam-wc."
            )
        return MCAN(
            *sizes,
            None if isinstance(attention, Objective) else attention,
            dim=options.dim,
            heads=options.heads,
            layers=options.layers,
            embedding_dim=options.embedding_dim,
            dropout=dropout or self.dropout,
            pad=PAD,
        )

    def lengths(self, train: Examples) -> Tensor:
        return (train[1] != PAD).sum(1)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        images, words, answers = batch
        inputs = (*self._regions(images), trimmed(words))
        if self.options.model == "bottom-up" and model.training:
            # an objective explains one answer: that of a random annotator, as in Deng et al.
            return model(*inputs, answers.gather(1, (answers != NOBODY).float().multinomial(1)).squeeze(1))
        return mean_nll(model(*inputs).log_softmax(-1), answers)

    def predict(
        self, model: nn.Module, inputs: Any, samples: int, dropout: bool = False, point_estimate: bool = False
    ) -> CategoricalPrediction:
        """Inputs: images, words and, if there is noise, the variance for each."""
        parts, entropies = [], []
        for places in torch.arange(len(inputs[0])).split(AT_ONCE):
            images, words, *variance = (each[places.to(each.device)] for each in inputs)
            given = (*self._regions(images, *variance), trimmed(words))
            parts.append(
                predict(
                    model, given, samples, likelihood=self.likelihood, dropout=dropout, point_estimate=point_estimate
                ).samples
            )
            if point_estimate and isinstance(model, BottomUpVQA):
                entropies.append(_prior_entropy(model, given))
        found = torch.cat(parts, 1)
        return PointAnswers(found, torch.cat(entropies)) if entropies else CategoricalPrediction(found)

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        images, words, answers = splits.test
        kinds = self.prepared.test.kinds
        found: dict[str, float] = {}
        shown: list[dict[str, Any]] = []
        for variance in (0.0, *self.options.noise):
            inputs = (images, words, torch.full((len(images),), variance))
            point, sampled = predict(inputs, point_estimate=True), predict(inputs)
            suffix = f"_noise_{variance:g}" if variance else ""
            found |= {f"{key}{suffix}": value for key, value in answer_figures(point, sampled, answers, kinds).items()}
            if not variance:
                shown = self._shown(point, sampled)
                if isinstance(point, PointAnswers):
                    found["prior_entropy"] = point.prior_entropy.mean().item()
        known = (answers != NOBODY).any(1).float().mean().item()
        details = {
            "answers": len(self.prepared.answers),
            "words": len(self.prepared.words),
            "known": known,
            "examples": shown,
        }
        return Evaluation(found, details)

    def picture(self, image: str) -> Float[Tensor, "height width 3"] | None:
        """The image of this id, colours in [0, 1]; None where there are features alone."""
        return None

    def _regions(self, images: Tensor, variance: Tensor | None = None) -> tuple[Tensor, Tensor]:
        features, mask = self.prepared.regions.of(images, variance)
        return features.to(images.device), mask.to(images.device)

    def _shown(self, point: CategoricalPrediction, sampled: CategoricalPrediction) -> list[dict[str, Any]]:
        test, answers = self.prepared.test, self.prepared.answers
        certainty = metrics.top_two_p_values(at_least_two(sampled.samples[:, :SHOWN]))
        return [
            {
                "image": test.images[place],
                "question": test.texts[place],
                "answer": test.answers[place][0],
                "said": answers[int(point.label[place])],
                "p_value": round(certainty[place].item(), 4),
            }
            for place in range(min(SHOWN, len(test)))
        ]


@torch.no_grad()
def _prior_entropy(model: BottomUpVQA, inputs: tuple[Tensor, ...]) -> Float[Tensor, " n"]:
    weights = model.eval().region_weights(*inputs)
    return entropy_of_log_weights(weights.clamp_min(torch.finfo(weights.dtype).tiny).log())


def mean_nll(
    log_probabilities: Float[Tensor, "n answers"], answers: Shaped[Tensor, "n annotators"]
) -> Float[Tensor, " n"]:
    """Of the answer of a random annotator, among those whose answer the model knows; 0 where there are none."""
    known = answers != NOBODY
    each = log_probabilities.gather(1, answers.clamp_min(0)).masked_fill(~known, 0.0)
    return -each.sum(1) / known.sum(1).clamp_min(1)


def answer_accuracy(chosen: Shaped[Tensor, " n"], answers: Shaped[Tensor, "n annotators"]) -> Float[Tensor, " n"]:
    """With one annotator 1 or 0, with several min(agreeing / 3, 1)."""
    agreeing = (answers == chosen.unsqueeze(1)).sum(1)
    annotators = answers.shape[1]
    return agreeing.float() if annotators == 1 else metrics.soft_accuracy(agreeing, annotators)


def answer_figures(
    point: CategoricalPrediction,
    sampled: CategoricalPrediction,
    answers: Shaped[Tensor, "n annotators"],
    kinds: Sequence[str],
) -> dict[str, float]:
    """Accuracy is the point estimate's and PAvPU goes with it, as in BAM; NLL and ECE are those of the sampled prediction.

    PAvPU is that of a paired test on logits, as in the released code; "pavpu_two_sample" is the paper's (appendix B.2.1): "whether the
    difference between the probabilities of the first and second highest classes (...) is statistically significant with two-sample
    t-test". The NLL is that of the questions of which the model knows an answer. Accuracy and PAvPU also by kind of answer.
    """
    answers = answers.to(point.samples.device)
    accuracy = answer_accuracy(point.label, answers)
    mean = sampled.mean
    known = (answers != NOBODY).any(1)
    confidence, chosen = mean.max(-1)
    found = {
        "nll": mean_nll(mean.clamp_min(torch.finfo(mean.dtype).tiny).log(), answers)[known].mean().item(),
        "ece": calibration_error(confidence, answer_accuracy(chosen, answers)),
    }
    logits = at_least_two(sampled.samples)
    groups = {"": [True] * len(kinds)} | {f"_{kind}": [each == kind for each in kinds] for kind in sorted(set(kinds))}
    found["pavpu_two_sample"] = metrics.pavpu(
        logits, accuracy=accuracy, threshold=THRESHOLD, test="welch", on="probs"
    ).value
    for name, marks in groups.items():
        chosen_ones = torch.tensor(marks, device=accuracy.device)
        found[f"accuracy{name}"] = accuracy[chosen_ones].mean().item()
        found[f"pavpu{name}"] = metrics.pavpu(
            logits[:, chosen_ones], accuracy=accuracy[chosen_ones], threshold=THRESHOLD
        ).value
    return found


def at_least_two(samples: Float[Tensor, "samples n answers"]) -> Float[Tensor, "two_or_more n answers"]:
    """The t-test needs two samples: a model without noise gives the same one twice, and is certain of everything."""
    return samples if len(samples) > 1 else samples.expand(2, -1, -1)
