"""CIFAR-10, what is outside it, USPS digits, and images made worse: small files in place of the real ones."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from bayesattn.experiments.data.colour_images import CIFAR10_TEST, SVHN, load_cifar10, load_others
from bayesattn.experiments.data.corruptions import KINDS, STRENGTHS, corrupted
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.usps import USPS, load_usps


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    monkeypatch.setenv("BAYESATTN_DATA_CHECK", "off")


def _write(path: Path, **arrays: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def _jpegs(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    packed = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=95)
        packed.append(buffer.getvalue())
    return np.frombuffer(b"".join(packed), np.uint8), np.cumsum([len(each) for each in packed])


def test_cifar10_is_decoded(tmp_path: Path) -> None:
    colours = np.array([[200, 30, 90], [10, 220, 40], [128, 128, 128]], np.uint8)
    jpeg, ends = _jpegs(np.broadcast_to(colours[:, None, None], (3, 32, 32, 3)).copy())
    labels = np.array([0, 9, 4], np.uint8)
    _write(tmp_path / CIFAR10_TEST.path, jpeg=jpeg, ends=ends, labels=labels)
    images, found = load_cifar10(CIFAR10_TEST)
    assert found.tolist() == [0, 9, 4]
    assert images.shape == (3, 3, 32, 32)
    torch.testing.assert_close(images.mean((2, 3)), torch.tensor(colours).float() / 255, atol=0.02, rtol=0)
    for changes, words in (
        ({"ends": ends[:2]}, "do not belong together"),
        ({"labels": np.array([0, 10, 4], np.uint8)}, "label 10 is none of 0 to 9"),
        ({"jpeg": np.zeros_like(jpeg)}, "image 0 is no JPEG"),
    ):
        _write(tmp_path / CIFAR10_TEST.path, **{"jpeg": jpeg, "ends": ends, "labels": labels} | changes)
        with pytest.raises(DataError, match=rf"test\.npz.*{words}.*Get it from"):
            load_cifar10(CIFAR10_TEST)
    (tmp_path / CIFAR10_TEST.path).write_bytes(b"nothing")
    with pytest.raises(DataError, match="is not a file of arrays jpeg, ends, labels"):
        load_cifar10(CIFAR10_TEST)


def test_other_images(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    _write(tmp_path / SVHN.path, images=pixels)
    torch.testing.assert_close(load_others(SVHN)[2, 1, 5, 7].item(), int(pixels[2, 5, 7, 1]) / 255)
    _write(tmp_path / SVHN.path, images=pixels[..., 0])
    with pytest.raises(DataError, match=r"images must be bytes \[n, 32, 32, 3\]"):
        load_others(SVHN)


def test_usps(tmp_path: Path) -> None:
    path = tmp_path / USPS.path
    path.parent.mkdir()
    values = np.zeros((2, 256), np.float32)
    values[1, 128:] = 1.0  # the lower half
    with h5py.File(path, "w") as file:
        file["test/data"] = values
    images = load_usps()
    assert images.shape == (2, 1, 28, 28)
    assert images[1, 0, :12].max() == 0
    assert images[1, 0, 16:].min() == pytest.approx(1)
    with h5py.File(path, "w") as file:
        file["test/data"] = values[:, :100]
    with pytest.raises(DataError, match=r"rows of 256 values .*usps\.h5"):
        load_usps()
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="is not the file of USPS digits"):
        load_usps()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stronger_corruption_is_further_from_the_image(kind: str) -> None:
    images = 0.2 + 0.4 * torch.rand(20, 3, 32, 32)
    before = images.clone()
    distances = [(corrupted(images, kind, strength) - images).square().mean().item() for strength in STRENGTHS]
    assert distances == sorted(distances)
    assert distances[0] > 0
    assert torch.equal(images, before)
    worst = corrupted(images, kind, 5)
    assert torch.equal(worst, corrupted(images, kind, 5))
    assert worst.min() >= 0
    assert worst.max() <= 1


def test_what_is_left_is_what_is_said() -> None:
    image = torch.rand(1, 3, 32, 32)
    torch.testing.assert_close(corrupted(image, "contrast", 5).std(), 0.2 * image.std(), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(corrupted(image, "blur", 3).mean(), image.mean(), atol=0.01, rtol=0)
    assert (corrupted(image, "occlusion", 2) == 0.5).all(1).sum() == 64
    with pytest.raises(ValueError, match="strength"):
        corrupted(image, "blur", 6)
