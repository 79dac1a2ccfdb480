"""A portrait on a page: as markup for a list, as data for the explorer."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from torch import Tensor

from bayesattn.experiments.tasks.portrait import Portrait


def as_markup(portrait: Portrait) -> Markup:
    """The image, or the words."""
    if portrait.image is None:
        return Markup("{}").format(" ".join(portrait.names))
    height, width = portrait.image.shape
    pixels = Markup("").join(
        Markup('<rect x="{}" y="{}" width="1.02" height="1.02" fill="rgb({},{},{})"/>').format(
            place % width, place // width, *[value] * 3
        )
        for place, value in enumerate(_grey(portrait.image))
    )
    return Markup('<svg class="pixel" viewBox="0 0 {} {}" role="img" aria-label="the image">{}</svg>').format(
        width, height, pixels
    )


def as_data(portrait: Portrait) -> dict[str, Any]:
    """The names, and the image with its grid of patches."""
    data: dict[str, Any] = {"names": list(portrait.names)}
    if portrait.image is not None and portrait.grid is not None:
        height, width = portrait.image.shape
        data["image"] = {"width": width, "height": height, "pixels": _grey(portrait.image), "grid": list(portrait.grid)}
    return data


def _grey(image: Tensor) -> list[int]:
    return (image.flatten().clamp(0, 1) * 255).round().int().tolist()
