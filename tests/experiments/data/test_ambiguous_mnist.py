"""Made ambiguous images lie between classes, are decided by the seed, and are kept; the published file is preferred."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bayesattn.experiments.data import ambiguous_mnist
from bayesattn.experiments.data.ambiguous_mnist import load_ambiguous_mnist, make_ambiguous, read_published
from bayesattn.experiments.data.digits import load_digits
from bayesattn.experiments.data.files import DataError


@pytest.fixture(scope="module")
def made() -> torch.Tensor:
    digits = load_digits()
    return make_ambiguous(digits.train_images, digits.train_labels, count=60, seed=0, epochs=40)


def test_images_are_images_and_not_training_images(made: torch.Tensor) -> None:
    assert made.shape == (60, 1, 8, 8)
    assert made.min() >= 0
    assert made.max() <= 1
    distance = torch.cdist(made.flatten(1), load_digits().train_images.flatten(1)).amin(1)
    assert distance.min() > 0.1


def test_a_classifier_that_was_no_judge_is_less_sure_of_them_than_of_digits(made: torch.Tensor) -> None:
    digits = load_digits()
    torch.manual_seed(5)
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(digits.train_images.flatten(1)), digits.train_labels).backward()
        optimiser.step()
    with torch.no_grad():
        confidence = [model(images.flatten(1)).softmax(-1).amax(-1).mean() for images in (digits.test_images, made)]
    assert confidence[0] > confidence[1] + 0.15


def test_the_seed_decides(made: torch.Tensor) -> None:
    digits = load_digits()
    again = make_ambiguous(digits.train_images, digits.train_labels, count=60, seed=0, epochs=40)
    assert torch.equal(again, made)


def test_made_images_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path))
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "data"))
    calls = []

    def make(images: torch.Tensor, labels: torch.Tensor, count: int, seed: int) -> torch.Tensor:
        calls.append(seed)
        return torch.full((count, 1, 28, 28), 0.2)

    monkeypatch.setattr(ambiguous_mnist, "make_ambiguous", make)
    monkeypatch.setattr(ambiguous_mnist, "load_images", lambda files: (torch.zeros(1, 1, 28, 28), torch.zeros(1)))
    first, second = load_ambiguous_mnist(3, seed=7), load_ambiguous_mnist(3, seed=7)
    assert calls == [7]
    assert torch.equal(first, second)
    assert first.unique().item() == pytest.approx(0.2)


def test_the_published_file_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    samples = torch.zeros(6004, 1, 28, 28)
    samples[6000:] = 0.5
    (tmp_path / "ambiguous_mnist").mkdir()
    torch.save(samples, tmp_path / "ambiguous_mnist/amnist_samples.pt")
    assert load_ambiguous_mnist(3).eq(0.5).all()
    assert len(read_published(tmp_path / "ambiguous_mnist/amnist_samples.pt")) == 4


@pytest.mark.parametrize("content", [b"no tensor", None])
def test_a_damaged_published_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "amnist_samples.pt"
    if content is None:
        torch.save(torch.zeros(3, 28), path)
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"amnist_samples.pt .*ddu_dirty_mnist, or remove it"):
        read_published(path)
