"""Images made worse, in five ways and at five strengths: ours, not those of CIFAR-10-C."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.support import checks
from bayesattn.support.annotations import Float

STRENGTHS = (1, 2, 3, 4, 5)
Images = Float[Tensor, "n channels height width"]


def noise(images: Tensor, strength: int) -> Tensor:
    """Gaussian noise of standard deviation 0.03 to 0.15, the same for the same images."""
    generator = torch.Generator().manual_seed(strength)
    return images + 0.03 * strength * torch.randn(images.shape, generator=generator)


def blur(images: Tensor, strength: int) -> Tensor:
    """A Gaussian of standard deviation 0.4 to 2 pixels."""
    sigma = 0.4 * strength
    reach = 5
    places = torch.arange(-reach, reach + 1, dtype=images.dtype)
    kernel = (-0.5 * (places / sigma).square()).exp()
    kernel = (kernel / kernel.sum()).expand(images.shape[1], 1, -1)
    padded = F.pad(images, (reach, reach, reach, reach), mode="replicate")
    across = F.conv2d(padded, kernel.unsqueeze(2), groups=images.shape[1])
    return F.conv2d(across, kernel.unsqueeze(3), groups=images.shape[1])


def contrast(images: Tensor, strength: int) -> Tensor:
    """Towards the image's mean: 0.8 to 0.2 of the contrast is left."""
    mean = images.mean((1, 2, 3), keepdim=True)
    return mean + (0.95 - 0.15 * strength) * (images - mean)


def brightness(images: Tensor, strength: int) -> Tensor:
    """Brighter by 0.08 to 0.4."""
    return images + 0.08 * strength


def occlusion(images: Tensor, strength: int) -> Tensor:
    """A grey square of 4 to 20 pixels somewhere, the same for the same images."""
    side = 4 * strength
    generator = torch.Generator().manual_seed(strength)
    height, width = images.shape[2:]
    top = torch.randint(0, height - side + 1, (len(images), 1, 1, 1), generator=generator)
    left = torch.randint(0, width - side + 1, (len(images), 1, 1, 1), generator=generator)
    rows, columns = torch.arange(height).view(1, 1, -1, 1), torch.arange(width).view(1, 1, 1, -1)
    hidden = (rows >= top) & (rows < top + side) & (columns >= left) & (columns < left + side)
    return images.where(~hidden, 0.5)


KINDS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "noise": noise,
    "blur": blur,
    "contrast": contrast,
    "brightness": brightness,
    "occlusion": occlusion,
}


def corrupted(images: Images, kind: str, strength: int) -> Images:
    """The images, in [0, 1], made worse.

    >>> images = torch.rand(2, 3, 32, 32)
    >>> [round((corrupted(images, "contrast", s) - images).abs().mean().item(), 2) < 0.3 for s in STRENGTHS]
    [True, True, True, True, True]
    """
    if strength not in STRENGTHS:
        raise ValueError(f"strength must be one of {STRENGTHS}, got {strength!r}.")
    return KINDS[checks.one_of("kind", kind, KINDS)](images, strength).clamp(0.0, 1.0)
