"""The ViT: patches, their order, and conversion."""

from __future__ import annotations

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.models.vit import ViT


def test_patches_are_the_images_squares_in_reading_order() -> None:
    model = ViT(image_size=4, patch_size=2, classes=3, dim=4)
    seen = []
    model.embedding.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    image = torch.arange(16.0).view(1, 1, 4, 4)
    model(image)
    assert seen[0][0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_positions_matter_and_examples_do_not_mix() -> None:
    model = ViT(image_size=8, patch_size=2, classes=3).eval()
    torch.nn.init.normal_(model.positions)
    images = torch.rand(5, 1, 8, 8)
    assert torch.allclose(model(images)[2], model(images[2:3])[0], atol=1e-5)
    assert not torch.allclose(model(images), model(images.flip(-1)), atol=1e-3)


def test_it_converts() -> None:
    model, images = ViT(image_size=8, patch_size=2, classes=3, depth=2).eval(), torch.rand(5, 1, 8, 8)
    before = model(images)
    assert torch.allclose(before, ba.convert(model, ba.Softmax())(images), atol=1e-5)


def test_messages() -> None:
    with pytest.raises(ValueError, match="image_size=9 must be a multiple of patch_size=2"):
        ViT(image_size=9, patch_size=2, classes=3)
    with pytest.raises(ValueError, match="dim=10 must be a multiple of heads=4"):
        ViT(image_size=8, patch_size=2, classes=3, dim=10, heads=4)
    with pytest.raises(ValueError, match=r"images must be \[batch, 1, 8, 8\], got \(2, 1, 4, 4\)"):
        ViT(image_size=8, patch_size=2, classes=3)(torch.rand(2, 1, 4, 4))
