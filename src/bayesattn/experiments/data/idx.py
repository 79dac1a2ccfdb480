"""Image sets in the idx format of MNIST: MNIST, Fashion-MNIST and notMNIST."""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from bayesattn.experiments.data.files import DataError, DataFile, read
from bayesattn.support.annotations import Float, Shaped

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_NOTMNIST = "https://raw.githubusercontent.com/davidflanagan/notMNIST-to-MNIST/master/"


def _file(folder: str, name: str, sha256: str, site: str) -> DataFile:
    return DataFile(f"{folder}/{name}", sha256, f"{site}{name}.gz", f"{site}{name}.gz")


MNIST_TRAIN = (
    _file(
        "mnist", "train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", _MNIST
    ),
    _file(
        "mnist", "train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", _MNIST
    ),
)
MNIST_TEST = (
    _file(
        "mnist", "t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", _MNIST
    ),
    _file(
        "mnist", "t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", _MNIST
    ),
)
FASHION_TRAIN = (
    _file(
        "fashion_mnist",
        "train-images-idx3-ubyte",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        _FASHION,
    ),
    _file(
        "fashion_mnist",
        "train-labels-idx1-ubyte",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        _FASHION,
    ),
)
FASHION_TEST = (
    _file(
        "fashion_mnist",
        "t10k-images-idx3-ubyte",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        _FASHION,
    ),
    _file(
        "fashion_mnist",
        "t10k-labels-idx1-ubyte",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        _FASHION,
    ),
)
NOTMNIST_TEST = (
    _file(
        "notmnist",
        "t10k-images-idx3-ubyte",
        "8e7f38ae95cc8f48e0986175ffc9137e5007ebcf3d8fdf6656c904eb9dab198b",
        _NOTMNIST,
    ),
    _file(
        "notmnist",
        "t10k-labels-idx1-ubyte",
        "5f8e6012f2ce730700d8d05fca098bc47f71d25b890e4bec7ac5ebfd614a4001",
        _NOTMNIST,
    ),
)


def load_images(
    files: tuple[DataFile, DataFile],
) -> tuple[Float[Tensor, "n 1 height width"], Shaped[Tensor, " n"]]:
    """Images in [0, 1] and their labels, from a pair of files."""
    images, labels = read_idx(files[0], dimensions=3), read_idx(files[1], dimensions=1)
    if len(images) != len(labels):
        raise DataError(
            f"{files[0].path} has {len(images)} images, {files[1].path} {len(labels)} labels: one is wrong."
        )
    return images.unsqueeze(1).float() / 255.0, labels.long()


def read_idx(file: DataFile, dimensions: int) -> Tensor:
    """An idx file of bytes: 0, 0, type 8, number of dimensions, each size as a big-endian integer, the bytes."""
    content, path = read(file)

    def wrong(what: str) -> DataError:
        return DataError(f"{path} is not an idx file of {dimensions}-dimensional bytes: {what}. {file.remedy()}")

    header = 4 + 4 * dimensions
    if len(content) < header:
        raise wrong(f"it has {len(content)} bytes, its header alone would have {header}")
    if content[:4] != bytes([0, 0, 8, dimensions]):
        raise wrong(f"it starts with {content[:4].hex(' ')}, not with 00 00 08 {dimensions:02x}")
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    if math.prod(sizes) == 0:
        raise wrong(f"its header announces no values, the sizes {sizes}")
    if len(content) - header != math.prod(sizes):
        raise wrong(f"its header announces {math.prod(sizes)} values, it has {len(content) - header}")
    return torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8).view(sizes)
