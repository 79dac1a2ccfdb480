"""What the image classification tasks share: a small ViT, class probabilities, and sets it was not trained for."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.experiments.models.vit import ViT
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task
from bayesattn.experiments.tasks.classification import auroc, figures
from bayesattn.experiments.tasks.knowing import figures_of_knowing
from bayesattn.experiments.tasks.portrait import Portrait, patches
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.weight_space.packing import packed_width

CLASSES = 10
SHOWN = 5
"""Images of highest and of lowest entropy that are kept with a result."""


class ImageTask(Task):
    """Ten classes. The AUROC of an out-of-distribution set is that of the predictive entropy."""

    likelihood = "categorical"
    label_names = tuple(str(digit) for digit in range(CLASSES))
    image_size: int
    patch_size: int
    channels = 1
    depth = 2
    knowing = False
    """Whether the figures are those of what a model knows of itself, with every score (`figures_of_knowing`)."""

    def __init__(self, hidden: int, feedforward: int, heads: int = 1):
        self.hidden = hidden
        self.heads = heads
        self.feedforward = feedforward
        self.max_len = (self.image_size // self.patch_size) ** 2

    def build(self, dropout: float) -> nn.Module:
        return ViT(
            self.image_size,
            self.patch_size,
            CLASSES,
            channels=self.channels,
            dim=self.hidden,
            depth=self.depth,
            heads=self.heads,
            feedforward=self.feedforward,
            dropout=dropout,
        )

    def narrowed(self, members: int) -> ImageTask:
        narrow = copy.copy(self)
        narrow.hidden = packed_width(self.hidden, members, self.heads)
        narrow.feedforward = max(1, round(self.feedforward * narrow.hidden / self.hidden))
        return narrow

    def portraits(self, inputs: Tensor) -> list[Portrait]:
        return [patches(image.mean(0), self.patch_size) for image in inputs]

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels, reduction="none")

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        images, labels = splits.test
        if self.knowing:
            return figures_of_knowing(predict, splits, self.out_of_distribution(images))
        inside = predict(images)
        assert isinstance(inside, CategoricalPrediction)
        found = {"log_likelihood": inside.log_prob(labels).mean().item()} | figures(inside.mean, labels)
        for name, others in self.out_of_distribution(images).items():
            found[f"auroc_{name}"] = auroc(inside.entropy, predict(others).entropy)
        return Evaluation(found, _extremes(inside, labels))


def _extremes(prediction: CategoricalPrediction, labels: Tensor) -> dict[str, list[dict[str, Any]]]:
    """The test images of highest and of lowest predictive entropy: their places, what was said and what is right."""
    order = prediction.entropy.argsort(descending=True)
    said = prediction.mean.argmax(-1)

    def shown(places: Tensor) -> list[dict[str, Any]]:
        return [
            {"place": p, "entropy": prediction.entropy[p].item(), "said": said[p].item(), "label": labels[p].item()}
            for p in places.tolist()
        ]

    return {"highest_entropy": shown(order[:SHOWN]), "lowest_entropy": shown(order.flip(0)[:SHOWN])}


def random_split(examples: Examples, first: int, seed: int) -> tuple[Examples, Examples]:
    """`first` random examples, and the others."""
    order = torch.randperm(len(examples[0]), generator=torch.Generator().manual_seed(seed))
    return tuple(t[order[:first]] for t in examples), tuple(t[order[first:]] for t in examples)
