"""Regions: padding, ids, noise that is a function of the image."""

from __future__ import annotations

import pytest
import torch

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.regions import from_blocks


def make():
    torch.manual_seed(1)
    return from_blocks([torch.randn(count, 3) for count in (2, 4, 1)], ["a", "b", "c"], "file.tsv")


def test_images_come_padded_in_any_order() -> None:
    regions = make()
    features, mask = regions.of(torch.tensor([2, 1, 2]))
    assert mask.tolist() == [[True, False, False, False], [True] * 4, [True, False, False, False]]
    torch.testing.assert_close(features[1], regions.values[2:6])
    torch.testing.assert_close(features[0, :1], regions.values[6:])
    assert (features[0, 1:] == 0).all()
    assert (regions.most, regions.dim) == (4, 3)


def test_noise_is_the_images_own_and_has_the_variance_it_says() -> None:
    wide = from_blocks([torch.zeros(40, 200), torch.zeros(40, 200)], ["a", "b"], "x")
    images = torch.tensor([0, 1, 0])
    noisy, _ = wide.of(images, torch.tensor([5.0, 5.0, 20.0]))
    assert noisy[0].var().item() == pytest.approx(5.0, rel=0.05)
    assert noisy.mean().abs().item() < 0.05
    torch.testing.assert_close(noisy[2], 2 * noisy[0])  # the same noise, scaled up
    assert not torch.allclose(noisy[0], noisy[1])
    torch.testing.assert_close(wide.of(images[1:2], torch.tensor([5.0]))[0][0], noisy[1])
    clean, _ = wide.of(images, torch.zeros(3))
    assert (clean == 0).all()
    features, mask = make().of(torch.tensor([0, 1]), torch.ones(2))
    assert (features[~mask] == 0).all()


def test_standardised_over_the_training_images_noise_included() -> None:
    regions = make()
    scaled = regions.standardised(torch.tensor([0, 1]))
    features, mask = scaled.of(torch.tensor([0, 1]))
    torch.testing.assert_close(features[mask].mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(features[mask].std(0, correction=0), torch.ones(3))
    plain, _ = regions.of(torch.tensor([2]), torch.tensor([4.0]))
    torch.testing.assert_close(
        scaled.of(torch.tensor([2]), torch.tensor([4.0]))[0], (plain - scaled.shift) / scaled.scale
    )


def test_images_without_features_are_named() -> None:
    assert make().find(["c", "a", "c"], "questions.json").tolist() == [2, 0, 2]
    with pytest.raises(
        DataError,
        match=r"2 of the 3 images of questions.json have no features in file.tsv: d, e. The ids there are such as a, b, c",
    ):
        make().find(["a", "e", "d", "e"], "questions.json")
