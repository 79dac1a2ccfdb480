"""USPS digits, 16 x 16, from the HDF5 file that is about."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from bayesattn.experiments.data.files import DataError, DataFile, read
from bayesattn.support.annotations import Float

USPS = DataFile(
    "usps/usps.h5",
    "734f88c541104a956d88be2c95d03b4a463ffd74ccc2ba9c80841fb98e3fcb36",
    "https://www.kaggle.com/datasets/bistaumanga/usps-dataset (usps.h5)",
)


def load_usps(size: int = 28) -> Float[Tensor, "n 1 size size"]:
    """The 2,007 test digits in [0, 1], made as large as MNIST's."""
    content, path = read(USPS)
    try:
        import h5py
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "USPS is an HDF5 file, which h5py reads: pip install 'bayesattn[experiments]'."
        ) from None
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            found: Any = file["test/data"]
            values = torch.tensor(found[()])
    except (KeyError, OSError, ValueError, TypeError) as problem:
        raise DataError(f"{path} is not the file of USPS digits ({problem}). {USPS.remedy()}") from None
    if values.dim() != 2 or values.shape[1] != 256 or not bool(((values >= 0) & (values <= 1)).all()):
        raise DataError(
            f"{path}: test/data must hold rows of 256 values in [0, 1], got {tuple(values.shape)}. {USPS.remedy()}"
        )
    images = values.float().view(-1, 1, 16, 16)
    return torch.nn.functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
