"""Pictures of weights over the regions of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import pyplot
from torch import Tensor

from bayesattn.experiments.report.plots import save
from bayesattn.support.annotations import Float


@dataclass(frozen=True)
class Panel:
    """A name and a value for each region; None leaves the place empty."""

    title: str
    weights: Float[Tensor, " regions"] | None


def region_maps(
    title: str,
    rows: Sequence[Sequence[Panel]],
    path: Path,
    image: Float[Tensor, "height width 3"] | None = None,
) -> Path:
    """Maps of regions: bright is much. A square number of regions is drawn as a grid, over the image if there is one, others as a strip.

    Every map has its own scale, whose largest value is written below it.
    """
    columns = max(len(row) for row in rows) + (image is not None)
    figure, axes = pyplot.subplots(
        len(rows),
        columns,
        figsize=(max(4.0, 1.9 * columns), 0.6 + 2.3 * len(rows)),
        layout="constrained",
        squeeze=False,
    )
    figure.suptitle(title, fontsize="medium", wrap=True)
    for place in axes.flat:
        place.set_axis_off()
    for line, row in zip(axes, rows, strict=True):
        if image is not None:
            line[0].imshow(image.numpy())
        for place, panel in zip(line[columns - len(row) :], row, strict=True):
            if panel.weights is not None:
                _draw(place, panel.title, panel.weights, image)
    return save(figure, path)


def _draw(place: pyplot.Axes, title: str, weights: Tensor, image: Tensor | None) -> None:
    side = math.isqrt(len(weights))
    square = side * side == len(weights)
    grid = weights.view(side, side) if square else weights.view(1, -1)
    extent = None
    if image is not None and square:
        height, width = image.shape[:2]
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        place.imshow(image.numpy())
    place.imshow(
        grid.numpy(),
        cmap="inferno",
        vmin=0,
        extent=extent,
        alpha=0.6 if extent else 1.0,
        aspect="equal" if square else "auto",
    )
    place.set_title(f"{title}\n≤ {weights.max().item():.2g}", fontsize="small")
