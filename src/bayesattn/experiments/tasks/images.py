"""What the image classification tasks share: a small ViT, class probabilities, and sets it was not trained for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.experiments.models.vit import ViT
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task
from bayesattn.experiments.tasks.classification import auroc, figures
from bayesattn.experiments.tasks.portrait import Portrait, patches
from bayesattn.prediction.predictions import CategoricalPrediction

CLASSES = 10


class ImageTask(Task):
    """Ten classes, one channel. The AUROC of an out-of-distribution set is that of the predictive entropy."""

    likelihood = "categorical"
    label_names = tuple(str(digit) for digit in range(CLASSES))
    image_size: int
    patch_size: int
    depth = 2

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
            dim=self.hidden,
            depth=self.depth,
            heads=self.heads,
            feedforward=self.feedforward,
            dropout=dropout,
        )

    def portraits(self, inputs: Tensor) -> list[Portrait]:
        return [patches(image[0], self.patch_size) for image in inputs]

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels, reduction="none")

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        images, labels = splits.test
        inside = predict(images)
        assert isinstance(inside, CategoricalPrediction)
        found = {"log_likelihood": inside.log_prob(labels).mean().item()} | figures(inside.mean, labels)
        for name, others in self.out_of_distribution(images).items():
            found[f"auroc_{name}"] = auroc(inside.entropy, predict(others).entropy)
        return Evaluation(found)


def random_split(examples: Examples, first: int, seed: int) -> tuple[Examples, Examples]:
    """`first` random examples, and the others."""
    order = torch.randperm(len(examples[0]), generator=torch.Generator().manual_seed(seed))
    return tuple(t[order[:first]] for t in examples), tuple(t[order[first:]] for t in examples)
