"""Plots that are kept as files: alignments, and figures against a level."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from torch import Tensor

from bayesattn.support.annotations import Float
from bayesattn.support.files import replacing

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.figure import Figure


def against_level(
    curves: dict[str, Float[Tensor, "seeds levels"]],
    levels: list[float],
    labels: tuple[str, str],
    title: str,
    path: Path,
) -> Path:
    """A figure against a level, one line for each method: the mean over seeds, and its standard error as a band.

    `labels` are those of the level and of the figure; the levels are set at equal distances.
    """
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    places = list(range(len(levels)))
    for name, values in curves.items():
        mean, error = values.mean(0), values.std(0, correction=1 if len(values) > 1 else 0) / len(values) ** 0.5
        (line,) = axes.plot(places, mean.tolist(), marker="o", markersize=3, label=name)
        axes.fill_between(places, (mean - error).tolist(), (mean + error).tolist(), color=line.get_color(), alpha=0.2)
    axes.set_xticks(places, [f"{level:g}" for level in levels])
    axes.set(xlabel=labels[0], ylabel=labels[1], title=title)
    figure.legend(frameon=False, fontsize="small", loc="outside right upper")
    return save(figure, path)


def alignments(
    panels: dict[str, Float[Tensor, "target source"]], source: list[str], target: list[str], path: Path
) -> Path:
    """Weights of source words (columns) for each target word (rows), one panel each, side by side; dark is much weight."""
    figure, axes = pyplot.subplots(
        1,
        len(panels),
        figsize=(len(panels) * (1.4 + 0.34 * len(source)), 1.4 + 0.34 * len(target)),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    for panel, (name, weights) in zip(axes[0], panels.items(), strict=True):
        panel.imshow(weights.numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
        panel.set_title(name)
        panel.set_xticks(range(len(source)), source, rotation=90)
        panel.set_yticks(range(len(target)), target)
        panel.tick_params(length=0, labelsize="small")
    return save(figure, path)


def save(figure: Figure, path: Path) -> Path:
    """Write whole or not at all."""
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150, format=path.suffix[1:])
    pyplot.close(figure)
    return path
