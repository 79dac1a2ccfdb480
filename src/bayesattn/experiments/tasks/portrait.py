"""How one example is shown to a person: words, an image in patches, a series of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from bayesattn.support.annotations import Float


@dataclass(frozen=True)
class Portrait:
    """The names of an example's positions, which are the queries and keys of its attention; and its image if it has one.

    Positions beyond the names are padding.
    """

    names: tuple[str, ...]
    image: Float[Tensor, "height width"] | None = None
    """Grey, in [0, 1]."""
    grid: tuple[int, int] | None = None
    """Rows and columns of patches, where the positions are patches of the image."""


def words(sentence: Sequence[str]) -> Portrait:
    """A sentence."""
    return Portrait(tuple(sentence))


def patches(image: Float[Tensor, "height width"], patch: int) -> Portrait:
    """A grey image in square patches, row by row."""
    rows, columns = image.shape[0] // patch, image.shape[1] // patch
    names = tuple(f"patch {row + 1}, {column + 1}" for row in range(rows) for column in range(columns))
    return Portrait(names, image, (rows, columns))


def series(values: Float[Tensor, " time"]) -> Portrait:
    """A series of numbers.

    >>> import torch
    >>> series(torch.tensor([0.5, -1.25])).names
    ('0.50', '-1.25')
    """
    return Portrait(tuple(f"{value:.2f}" for value in values.tolist()))
