"""scikit-learn's handwritten digits (real, packaged with scikit-learn), and inputs that are not quite digits any more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.support.annotations import Float, Shaped


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 8, 8] in [0, 1] and labels 0 … 9, split at random."""

    train_images: Float[Tensor, "train 1 8 8"]
    train_labels: Shaped[Tensor, " train"]
    test_images: Float[Tensor, "test 1 8 8"]
    test_labels: Shaped[Tensor, " test"]


def load_digits(seed: int = 0, test_share: float = 1 / 3) -> Digits:
    """The 1,797 digits, split into train and test by `seed`."""
    try:
        from sklearn import datasets
    except ModuleNotFoundError:
        raise ModuleNotFoundError("The digits come with scikit-learn: pip install 'bayesattn[experiments]'.") from None
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must lie in (0, 1), got {test_share!r}.")
    raw = datasets.load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 16.0  # pyright: ignore[reportAttributeAccessIssue]
    labels = torch.tensor(raw.target)  # pyright: ignore[reportAttributeAccessIssue]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    test, train = order.split([round(test_share * len(images)), len(images) - round(test_share * len(images))])
    return Digits(images[train], labels[train], images[test], labels[test])


def rotated(images: Float[Tensor, "n 1 8 8"]) -> Float[Tensor, "n 1 8 8"]:
    """Turned by a quarter."""
    return images.rot90(1, dims=(2, 3))


def scrambled(images: Float[Tensor, "n 1 8 8"], seed: int = 0, patch: int = 2) -> Float[Tensor, "n 1 8 8"]:
    """The patches of each image in random order: the same local content, no shape."""
    patches = torch.nn.functional.unfold(images, patch, stride=patch)
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(len(images), patches.shape[-1], generator=generator).argsort(1)
    shuffled = patches.gather(2, order.unsqueeze(1).expand_as(patches))
    return torch.nn.functional.fold(shuffled, images.shape[-2:], patch, stride=patch)


def noise(images: Float[Tensor, "n 1 8 8"], seed: int = 0) -> Float[Tensor, "n 1 8 8"]:
    """Uniform noise of the images' shape, with no digit in it."""
    return torch.rand(images.shape, generator=torch.Generator().manual_seed(seed))


OUT_OF_DISTRIBUTION = {"rotated": rotated, "scrambled": scrambled, "noise": noise}
"""Ways to make inputs that a digit classifier should not be sure of."""
