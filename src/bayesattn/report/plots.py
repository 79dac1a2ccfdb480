"""Plots of how sure a model is, and how right it is to be so."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from bayesattn.annotations import Float, Shaped

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.figure import Figure


def reliability(
    predictions: dict[str, Float[Tensor, "n classes"]], labels: Shaped[Tensor, " n"], path: Path, bins: int = 10
) -> Path:
    """Accuracy against confidence, one line for each method; the diagonal is perfect calibration."""
    figure, axes = pyplot.subplots(figsize=(5.5, 5), layout="constrained")
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="perfect")
    edges = torch.linspace(0, 1, bins + 1)
    for name, probabilities in predictions.items():
        confidence, predicted = probabilities.max(-1)
        right = (predicted == labels).float()
        place = torch.bucketize(confidence, edges[1:-1])
        points = [
            (confidence[place == index].mean().item(), right[place == index].mean().item())
            for index in range(bins)
            if (place == index).any()
        ]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
    axes.set(xlabel="confidence", ylabel="accuracy", title="Reliability", xlim=(0, 1.01), ylim=(0, 1.01))
    axes.legend(frameon=False)
    return save_figure(figure, path)


def entropy_in_and_out(
    inside: dict[str, Float[Tensor, " n"]], outside: dict[str, Float[Tensor, " m"]], classes: int, path: Path
) -> Path:
    """Histograms of predictive entropy in and out of distribution, one panel for each method."""
    figure, panels = pyplot.subplots(
        1, len(inside), figsize=(2.6 * len(inside), 2.8), sharex=True, sharey=True, layout="constrained", squeeze=False
    )
    highest = torch.tensor(float(classes)).log().item()
    for axes, name in zip(panels[0], inside, strict=True):
        for values, label in ((inside[name], "in distribution"), (outside[name], "out of distribution")):
            axes.hist(values.numpy(), bins=25, range=(0, highest), density=True, alpha=0.6, label=label)
        axes.set(title=name, xlabel="entropy (nats)")
    panels[0][0].set_ylabel("density")
    panels[0][-1].legend(frameon=False, fontsize="small")
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    figure.savefig(unfinished, dpi=150, format=path.suffix[1:])
    pyplot.close(figure)
    os.replace(unfinished, path)
    return path
