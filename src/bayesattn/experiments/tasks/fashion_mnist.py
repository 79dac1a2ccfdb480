"""Fashion-MNIST with a small ViT, and digits and letters, which are not fashion."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bayesattn.experiments.data.idx import FASHION_TEST, FASHION_TRAIN, MNIST_TEST, NOTMNIST_TEST, load_images
from bayesattn.experiments.data.usps import USPS, load_usps
from bayesattn.experiments.tasks.base import Splits, Training
from bayesattn.experiments.tasks.images import ImageTask, random_split
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.support import checks


@dataclass(frozen=True)
class FashionOptions:
    """The model of Fashion-MNIST, and how much of the test sets is used."""

    hidden: int = 64
    """Width of the transformer."""
    feedforward: int = 256
    """Width of its inner layer."""
    heads: int = 4
    """Heads of each attention."""
    data_seed: int = 0
    """Which 54,000 of the 60,000 training images are trained on; the others validate."""
    test_examples: int = 10_000
    """Images of each test set at most."""


class FashionTask(ImageTask):
    """28 x 28 images in patches of 4 x 4: 49 tokens. Outside: MNIST, notMNIST, USPS."""

    training = Training(epochs=20, samples=8, batch_size=128, learning_rate=2e-3)
    files = (*FASHION_TRAIN, *FASHION_TEST, *MNIST_TEST, *NOTMNIST_TEST, USPS)
    label_names = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
    image_size = 28
    patch_size = 4
    knowing = True

    def __init__(self, options: FashionOptions):
        checks.whole("test_examples", options.test_examples)
        hidden, feedforward = checks.whole("hidden", options.hidden), checks.whole("feedforward", options.feedforward)
        super().__init__(hidden, feedforward, options.heads)
        self.options = options

    def load(self) -> Splits:
        images, labels = load_images(FASHION_TRAIN)
        train, validation = random_split((images, labels), round(0.9 * len(images)), self.options.data_seed)
        images, labels = load_images(FASHION_TEST)
        count = self.options.test_examples
        return Splits(train, validation, (images[:count], labels[:count]))

    def out_of_distribution(self, test: Tensor) -> dict[str, Tensor]:
        others = {"mnist": load_images(MNIST_TEST)[0], "notmnist": load_images(NOTMNIST_TEST)[0], "usps": load_usps()}
        return {name: images[: self.options.test_examples] for name, images in others.items()}


TASKS.add("fashion-mnist", "Fashion-MNIST, ViT; MNIST, notMNIST and USPS digits outside", FashionOptions(), FashionTask)
