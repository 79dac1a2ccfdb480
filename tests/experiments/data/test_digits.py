"""The digits: all of them, once, in [0, 1]; and what is made of them."""

from __future__ import annotations

import sys

import pytest
import torch
from sklearn import datasets

from bayesattn.experiments.data import digits


def test_the_split_holds_every_digit_once() -> None:
    data = digits.load_digits(seed=3)
    assert (len(data.train_images), len(data.test_images)) == (1198, 599)
    everything = torch.cat([data.train_images, data.test_images]).flatten(1) * 16
    original = torch.tensor(datasets.load_digits().data, dtype=torch.float32)  # pyright: ignore
    assert sorted(everything.tolist()) == sorted(original.tolist())
    assert everything.max() == 16
    again = digits.load_digits(seed=3)
    assert torch.equal(data.test_images, again.test_images)
    assert not torch.equal(data.test_images, digits.load_digits(seed=4).test_images)


def test_out_of_distribution_inputs_keep_what_they_should() -> None:
    images = digits.load_digits().test_images[:20]
    assert torch.equal(digits.rotated(digits.rotated(digits.rotated(digits.rotated(images)))), images)
    scrambled = digits.scrambled(images)
    assert torch.allclose(scrambled.sum((1, 2, 3)), images.sum((1, 2, 3)), atol=1e-4)
    assert not torch.equal(scrambled, images)
    assert torch.equal(scrambled, digits.scrambled(images))
    noise = digits.noise(images)
    assert noise.min() >= 0
    assert noise.max() <= 1
    assert abs(torch.corrcoef(torch.stack([noise.flatten(), images.flatten()]))[0, 1]) < 0.15


def test_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"test_share must lie in \(0, 1\), got 1.5"):
        digits.load_digits(test_share=1.5)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match=r"come with scikit-learn: pip install 'bayesattn\[experiments\]'"):
        digits.load_digits()
