"""CIFAR-10 with a small ViT; house numbers and textures outside, and test images made worse at five strengths."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bayesattn.experiments.data.colour_images import (
    CIFAR10_TEST,
    CIFAR10_TRAIN,
    SIZE,
    SVHN,
    TEXTURES,
    load_cifar10,
    load_others,
)
from bayesattn.experiments.data.corruptions import KINDS, STRENGTHS, corrupted
from bayesattn.experiments.tasks.base import Evaluation, Predictor, Splits, Training
from bayesattn.experiments.tasks.classification import figures
from bayesattn.experiments.tasks.images import ImageTask, random_split
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.support import checks


@dataclass(frozen=True)
class CifarOptions:
    """The model of CIFAR-10, and how much of the test images is used."""

    hidden: int = 96
    """Width of the transformer."""
    feedforward: int = 384
    """Width of its inner layer."""
    heads: int = 4
    """Heads of each attention."""
    depth: int = 4
    """Layers of the transformer."""
    data_seed: int = 0
    """Which nine tenths of the training images are trained on; the others validate."""
    test_examples: int = 10_000
    """Test images at most."""
    corrupted_examples: int = 500
    """Test images that are made worse, in each of five ways at each of five strengths; 0: none."""


class CifarTask(ImageTask):
    """32 x 32 colour images in patches of 4 x 4: 64 tokens. Outside: house numbers (SVHN) and textures."""

    training = Training(epochs=30, samples=8, batch_size=64, learning_rate=1e-3)
    files = (CIFAR10_TRAIN, CIFAR10_TEST, SVHN, TEXTURES)
    label_names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    image_size = SIZE
    patch_size = 4
    channels = 3
    knowing = True

    def __init__(self, options: CifarOptions):
        checks.whole("test_examples", options.test_examples)
        checks.whole("corrupted_examples", options.corrupted_examples, minimum=0)
        hidden, feedforward = checks.whole("hidden", options.hidden), checks.whole("feedforward", options.feedforward)
        super().__init__(hidden, feedforward, options.heads)
        self.depth = checks.whole("depth", options.depth)
        self.options = options

    def load(self) -> Splits:
        images, labels = load_cifar10(CIFAR10_TRAIN)
        train, validation = random_split((images, labels), round(0.9 * len(images)), self.options.data_seed)
        images, labels = load_cifar10(CIFAR10_TEST)
        test, _ = random_split((images, labels), min(self.options.test_examples, len(images)), self.options.data_seed)
        return Splits(train, validation, test)

    def out_of_distribution(self, test: Tensor) -> dict[str, Tensor]:
        return {"svhn": load_others(SVHN), "textures": load_others(TEXTURES)}

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        """`nll_corrupted_3` and the like are means over the five ways at strength 3, without a temperature."""
        found = super().evaluate(predict, splits)
        count = self.options.corrupted_examples
        images, labels = (tensor[:count] for tensor in splits.test)
        for strength in STRENGTHS if count else ():
            sums: dict[str, float] = {}
            for kind in KINDS:
                prediction = predict(corrupted(images, kind, strength))
                of_kind = figures(prediction.mean.cpu(), labels) | {
                    "nll": -prediction.log_prob(labels.to(prediction.samples.device)).mean().item()
                }
                for name in ("accuracy", "nll", "ece"):
                    sums[name] = sums.get(name, 0.0) + of_kind[name] / len(KINDS)
            found.metrics.update({f"{name}_corrupted_{strength}": value for name, value in sums.items()})
        return found


TASKS.add("cifar10", "CIFAR-10, ViT; house numbers, textures and corruptions outside", CifarOptions(), CifarTask)
