"""easy-VQA: simple questions on drawn shapes. The regions of an image are its patches."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from bayesattn.experiments.data.features import read_arrays
from bayesattn.experiments.data.files import DataError, DataFile, read
from bayesattn.experiments.data.questions import Questions, kind_of
from bayesattn.experiments.data.records import parse_json
from bayesattn.experiments.data.regions import Regions
from bayesattn.support import checks
from bayesattn.support.annotations import Float

_SOURCE = "the package easy-vqa on PyPI, images as one array"
_HASHES = {
    "train_questions.json": "bb67697636aed0e65631d4266824aebeae5c833b0f37ed781e20752e85617ec5",
    "test_questions.json": "0d4630a51bafec65343e2f6af9cdd20cf8eae214344ef57636202eec409553f7",
    "train_images.npz": "436fc96b6c381ce7df74c5a3ca1e313d9f7490e4d4ebb5232cf6228754779a0f",
    "test_images.npz": "af0888295dd40d0773dad2b65df195f655c4e89f7d664c795ab407dd73f2550b",
}
FILES = {name: DataFile(f"easy_vqa/{name}", digest, _SOURCE) for name, digest in _HASHES.items()}


def load_easy_vqa(patch: int = 16) -> tuple[Questions, Questions, Regions]:
    """The questions to train and to test on, and the patches of all images, whose ids are "train0", … and "test0", …"""
    parts = {part: _questions(part) for part in ("train", "test")}
    images = {part: load_images(part) for part in parts}
    for part, questions in parts.items():
        for number, image in enumerate(questions.images):
            if int(image.removeprefix(part)) >= len(images[part]):
                raise DataError(
                    f"easy_vqa/{part}_questions.json, question {number} is on image {image.removeprefix(part)}, but there are "
                    f"{len(images[part])} images in easy_vqa/{part}_images.npz."
                )
    pixels = torch.cat([images["train"], images["test"]])
    cut = patches(pixels, patch).half()
    ids = [f"{part}{number}" for part, each in images.items() for number in range(len(each))]
    offsets = torch.arange(len(ids) + 1) * cut.shape[1]
    return parts["train"], parts["test"], Regions(cut.flatten(0, 1), offsets, tuple(ids), "easy_vqa")


def load_images(part: str) -> Float[Tensor, "n height width 3"]:
    """The images of one part, colours in [0, 1]."""
    file = FILES[f"{checks.one_of('part', part, ('train', 'test'))}_images.npz"]
    content, path = read(file)
    images = read_arrays(content, path, ("images",))["images"]
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != numpy.uint8 or images.size == 0:
        raise DataError(
            f"{path}: the array 'images' must be bytes [images, height, width, 3], not {images.dtype} {images.shape}. {file.remedy()}"
        )
    return torch.from_numpy(images).float() / 255.0


def patches(images: Float[Tensor, "n height width channels"], size: int) -> Float[Tensor, "n patches pixels_and_place"]:
    """Squares of size × size pixels in row-major order: their colours, then their place (row and column in [-1, 1]).

    The place is a feature because attention knows no order, and the shape of something is where its colours are.

    >>> import torch
    >>> patches(torch.zeros(1, 4, 4, 3), 2).shape
    torch.Size([1, 4, 14])
    """
    count, height, width, channels = images.shape
    if height % size or width % size:
        raise ValueError(f"patch={size} does not divide images of {height} x {width} pixels: take a divisor of both.")
    rows, columns = height // size, width // size
    cut = images.view(count, rows, size, columns, size, channels).transpose(2, 3).reshape(count, rows * columns, -1)
    place = torch.cartesian_prod(torch.linspace(-1, 1, rows), torch.linspace(-1, 1, columns))
    return torch.cat([cut, place.expand(count, -1, -1)], -1)


def _questions(part: str) -> Questions:
    file = FILES[f"{part}_questions.json"]
    content, path = read(file)
    entries = parse_json(content, path)
    found = Questions([], [], [], [])
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        match entry:
            case [str(text), str(answer), int(image)] if image >= 0 and not isinstance(image, bool):
                found.texts.append(text)
                found.images.append(f"{part}{image}")
                found.answers.append((answer,))
                found.kinds.append(kind_of(answer))
            case _:
                raise DataError(
                    f"{path}, entry {number} must be [question, answer, image id], not {str(entry)[:60]!r}. {file.remedy()}"
                )
    return found
