"""The idx format: values as written, and faults named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bayesattn.experiments.data.files import DataError, DataFile, locate
from bayesattn.experiments.data.idx import FASHION_TEST, MNIST_TEST, MNIST_TRAIN, NOTMNIST_TEST, load_images, read_idx
from helpers.data_files import idx, put

FILE = DataFile("set/images", "", "somewhere")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    return tmp_path


def test_values_come_back_as_written(folder: Path) -> None:
    values = torch.randint(0, 256, (3, 4, 5), dtype=torch.uint8)
    labels = torch.tensor([7, 0, 9], dtype=torch.uint8)
    pair = (put(folder, FILE, idx(values)), put(folder, DataFile("set/labels", "", ""), idx(labels)))
    images, classes = load_images(pair)
    torch.testing.assert_close(images, values.unsqueeze(1) / 255.0)
    assert classes.tolist() == [7, 0, 9]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\x00\x00\x08\x01\x00\x00\x00\x01\x05", "it has 9 bytes, its header alone would have 16"),
        (b"\x00\x00\x0d\x03" + bytes(20), "it starts with 00 00 0d 03, not with 00 00 08 03"),
        (idx(torch.zeros(2, 3, 3, dtype=torch.uint8))[:-1], "its header announces 18 values, it has 17"),
    ],
)
def test_a_wrong_header_is_named(folder: Path, content: bytes, fault: str) -> None:
    file = put(folder, FILE, content)
    with pytest.raises(DataError, match=rf"set/images.gz is not an idx file .*{fault}. Get it from somewhere"):
        read_idx(file, dimensions=3)


def test_images_and_labels_must_be_as_many(folder: Path) -> None:
    pair = (
        put(folder, FILE, idx(torch.zeros(3, 2, 2, dtype=torch.uint8))),
        put(folder, DataFile("set/labels", "", ""), idx(torch.zeros(2, dtype=torch.uint8))),
    )
    with pytest.raises(DataError, match="3 images, set/labels 2 labels"):
        load_images(pair)


@pytest.mark.parametrize(
    ("pair", "count"), [(MNIST_TRAIN, 60_000), (MNIST_TEST, 10_000), (FASHION_TEST, 10_000), (NOTMNIST_TEST, 10_000)]
)
def test_the_real_sets_are_what_they_should_be(pair: tuple[DataFile, DataFile], count: int) -> None:
    if locate(pair[0]) is None:
        pytest.skip(f"{pair[0].path} is not here")
    images, labels = load_images(pair)
    assert images.shape == (count, 1, 28, 28)
    assert labels.unique().tolist() == list(range(10))
    assert images.min() == 0
    assert images.max() == 1


def test_an_empty_set_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"images.gz is not an idx file .*announces no values, the sizes \(0, 4, 5\)"):
        read_idx(put(folder, FILE, idx(torch.zeros(0, 4, 5, dtype=torch.uint8))), dimensions=3)
