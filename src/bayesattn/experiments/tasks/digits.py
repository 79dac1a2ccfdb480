"""The MNIST task on scikit-learn's packaged digits: small, and needs no files."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bayesattn.experiments.data.digits import OUT_OF_DISTRIBUTION, load_digits
from bayesattn.experiments.registry import added_later
from bayesattn.experiments.tasks.base import Splits, Training
from bayesattn.experiments.tasks.images import ImageTask, random_split
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.support import checks


@dataclass(frozen=True)
class DigitsOptions:
    """The model of the digits, and how they are split."""

    hidden: int = 32
    """Width of the transformer."""
    feedforward: int = 128
    """Width of its inner layer."""
    data_seed: int = 0
    """Which digits are trained on, validate, and test."""
    heads: int = added_later(1)
    """Heads of each attention."""
    knowing: bool = added_later(False)
    """Give the figures of what the model knows of itself, with every score, instead of the thesis's."""


class DigitsTask(ImageTask):
    """8 x 8 images in patches of 2 x 2: 16 tokens. Out of distribution: turned, scrambled, noise."""

    training = Training(epochs=30, samples=10, learning_rate=5e-3)
    image_size = 8
    patch_size = 2

    def __init__(self, options: DigitsOptions):
        super().__init__(
            checks.whole("hidden", options.hidden), checks.whole("feedforward", options.feedforward), options.heads
        )
        self.options = options
        self.knowing = options.knowing

    def load(self) -> Splits:
        digits = load_digits(self.options.data_seed)
        train, validation = random_split((digits.train_images, digits.train_labels), 1000, self.options.data_seed)
        return Splits(train, validation, (digits.test_images, digits.test_labels))

    def out_of_distribution(self, test: Tensor) -> dict[str, Tensor]:
        return {name: make(test) for name, make in OUT_OF_DISTRIBUTION.items()}


TASKS.add("digits", "scikit-learn's digits, ViT; turned, scrambled and noise outside", DigitsOptions(), DigitsTask)
