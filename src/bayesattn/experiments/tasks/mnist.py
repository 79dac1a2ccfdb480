"""MNIST with the thesis's small ViT, and three sets that are not MNIST."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bayesattn.experiments.data.ambiguous_mnist import load_ambiguous_mnist
from bayesattn.experiments.data.idx import FASHION_TEST, MNIST_TEST, MNIST_TRAIN, NOTMNIST_TEST, load_images
from bayesattn.experiments.tasks.base import Splits, Training
from bayesattn.experiments.tasks.images import ImageTask, random_split
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.support import checks


@dataclass(frozen=True)
class MnistOptions:
    """The model of MNIST, and how much of the test sets is used."""

    hidden: int = 32
    """Width of the transformer."""
    feedforward: int = 128
    """Width of its inner layer (not stated in the thesis)."""
    data_seed: int = 0
    """Which 48,000 of the 60,000 training images are trained on; the others validate."""
    test_examples: int = 9984
    """Images of each test set (the thesis: 9,984, whole batches; the ambiguous set has 6,000)."""


class MnistTask(ImageTask):
    """28 x 28 images in patches of 4 x 4: 49 tokens. Out of distribution: Fashion-MNIST, notMNIST, Ambiguous-MNIST."""

    training = Training(epochs=150, samples=10, batch_size=128, learning_rate=2e-3)
    files = (*MNIST_TRAIN, *MNIST_TEST, *FASHION_TEST, *NOTMNIST_TEST)
    weight_priors = "MNIST"
    image_size = 28
    patch_size = 4

    def __init__(self, options: MnistOptions):
        super().__init__(checks.whole("hidden", options.hidden), checks.whole("feedforward", options.feedforward))
        checks.whole("test_examples", options.test_examples)
        self.options = options

    def load(self) -> Splits:
        train, validation = random_split(load_images(MNIST_TRAIN), 48_000, self.options.data_seed)
        images, labels = load_images(MNIST_TEST)
        count = self.options.test_examples
        return Splits(train, validation, (images[:count], labels[:count]))

    def out_of_distribution(self, test: Tensor) -> dict[str, Tensor]:
        count = self.options.test_examples
        return {
            "fashion": load_images(FASHION_TEST)[0][:count],
            "notmnist": load_images(NOTMNIST_TEST)[0][:count],
            "ambiguous": load_ambiguous_mnist()[:count],
        }


TASKS.add("mnist", "MNIST digits, ViT; Fashion-MNIST, notMNIST and Ambiguous-MNIST outside", MnistOptions(), MnistTask)
