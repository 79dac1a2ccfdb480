"""Figures of the study of weights, and of what priors predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from bayesattn.experiments.analysis.fits import off_diagonal_values
from bayesattn.experiments.analysis.prior_predictive import PriorPredictive
from bayesattn.experiments.analysis.weight_study import LayerStudy
from bayesattn.experiments.report.plots import save

matplotlib.use("Agg")

from matplotlib import pyplot


def densities(layers: Sequence[LayerStudy], path: Path) -> Path:
    """The weights of each layer and the best family by likelihood, on a logarithmic scale: tails show."""
    figure, panels = _panels(layers)
    for axes, layer in zip(panels, layers, strict=False):
        low, high = np.quantile(layer.sample, [0.0005, 0.9995])
        axes.hist(layer.sample, bins=80, range=(low, high), density=True, alpha=0.5, color="grey")
        grid = np.linspace(low, high, 300)
        for family in dict.fromkeys(("gaussian", layer.best_by_likelihood)):
            axes.plot(grid, layer.fits[family].frozen().pdf(grid), label=family)
        axes.set_yscale("log")
        axes.legend(frameon=False, fontsize="x-small")
    return save(figure, path)


def quantiles(layers: Sequence[LayerStudy], path: Path) -> Path:
    """Q-Q plots of each layer against its best Gaussian, in units of its scale: a line is a Gaussian."""
    figure, panels = _panels(layers)
    levels = np.linspace(0.001, 0.999, 200)
    for axes, layer in zip(panels, layers, strict=False):
        gaussian = layer.fits["gaussian"]
        theory = gaussian.frozen().ppf(levels) / gaussian.prior.scale
        axes.plot(theory, np.quantile(layer.sample, levels) / gaussian.prior.scale, ".", markersize=3)
        axes.plot(theory, theory, color="grey", linestyle=":")
        axes.set(xlabel="Gaussian", ylabel="weights")
    return save(figure, path)


def correlations(layers: Sequence[LayerStudy], path: Path) -> Path:
    """Heat maps of the correlations between the weights of different inputs."""
    shown = [layer for layer in layers if len(layer.correlation) > 1]
    figure, panels = _panels(shown)
    for axes, layer in zip(panels, shown, strict=False):
        image = axes.imshow(layer.correlation - np.eye(len(layer.correlation)), cmap="RdBu", vmin=-0.3, vmax=0.3)
        axes.set(xticks=[], yticks=[])
        figure.colorbar(image, ax=axes, shrink=0.8)
    return save(figure, path)


def covariance_maps(layers: Sequence[LayerStudy], path: Path) -> Path:
    """Heat maps of the covariances between single weights, each beside that of independent Gaussians."""
    shown = [layer for layer in layers if len(layer.covariances.matrix) > 1]
    figure, panels = pyplot.subplots(len(shown), 2, figsize=(6, 2.6 * len(shown)), squeeze=False, layout="constrained")
    for row, layer in zip(panels, shown, strict=True):
        matrices = (layer.covariances.matrix, layer.covariances.isotropic)
        drawn = [
            axes.imshow(matrix - np.diag(np.diag(matrix)), cmap="RdBu", vmin=-1, vmax=1)
            for axes, matrix in zip(row, matrices, strict=True)
        ]
        for axes in row:
            axes.set(xticks=[], yticks=[])
        figure.colorbar(drawn[1], ax=row[1], shrink=0.8)
        row[0].set_title(layer.name, fontsize="x-small")
        row[1].set_title("independent Gaussians", fontsize="x-small")
    return save(figure, path)


def covariance_histograms(layers: Sequence[LayerStudy], path: Path) -> Path:
    """The covariances off the diagonal, and those of independent Gaussians."""
    shown = [layer for layer in layers if len(layer.covariances.matrix) > 1]
    figure, panels = _panels(shown)
    for axes, layer in zip(panels, shown, strict=False):
        pairs = {"weights": layer.covariances.matrix, "independent Gaussians": layer.covariances.isotropic}
        values = {name: off_diagonal_values(matrix) for name, matrix in pairs.items()}
        bound = max(float(np.abs(each).max()) for each in values.values())
        for name, each in values.items():
            axes.hist(each, bins=60, range=(-bound, bound), density=True, alpha=0.5, label=name)
        axes.set(xlabel="covariance / variance", yticks=[])
        axes.legend(frameon=False, fontsize="xx-small")
    return save(figure, path)


def entropies_by_scale(curves: Mapping[str, Sequence[PriorPredictive]], scales: Sequence[float], path: Path) -> Path:
    """Entropy of what networks from a prior predict, alone and averaged, against the prior's scale."""
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
    titles = {"expected_entropy": "of single networks", "entropy": "of all networks together"}
    for axes, (attribute, title) in zip(panels, titles.items(), strict=True):
        for name, values in curves.items():
            axes.plot(scales, [getattr(value, attribute) for value in values], label=name, marker=".")
        axes.set(xscale="log", xlabel="scale of the weights' prior", title=title)
    panels[0].set_ylabel("entropy (nats)")
    panels[1].legend(frameon=False, fontsize="x-small")
    return save(figure, path)


def entropy_histograms(histograms: Mapping[str, Mapping[str, Any]], highest: float, path: Path) -> Path:
    """Entropies between 0 and `highest`, a panel for each prior: of predictions with several networks, and of single networks."""
    names = list(next(iter(histograms.values())))
    columns = 3
    rows = -(-len(names) // columns)
    figure, panels = pyplot.subplots(
        rows, columns, figsize=(3.4 * columns, 2.3 * rows), sharex=True, squeeze=False, layout="constrained"
    )
    for axes, name in zip(panels.flat, names, strict=False):
        for kind, of_kind in histograms.items():
            counts = np.array(of_kind[name]["counts"], dtype=float)
            axes.stairs(
                counts / counts.sum(), np.linspace(0, highest, len(counts) + 1), fill=True, alpha=0.5, label=kind
            )
        axes.set_title(name, fontsize="small")
        axes.set_yticks([])
    for axes in panels[-1]:
        axes.set_xlabel("entropy (nats)")
    panels[0, 0].legend(frameon=False, fontsize="x-small")
    for axes in panels.flat[len(names) :]:
        axes.axis("off")
    return save(figure, path)


def _panels(layers: Sequence[LayerStudy]):
    columns = min(max(len(layers), 1), 4)
    rows = -(-max(len(layers), 1) // columns)
    figure, panels = pyplot.subplots(
        rows, columns, figsize=(3.4 * columns, 2.8 * rows), squeeze=False, layout="constrained"
    )
    for axes, layer in zip(panels.flat, layers, strict=False):
        axes.set_title(layer.name, fontsize="small")
    for axes in panels.flat[len(layers) :]:
        axes.axis("off")
    return figure, list(panels.flat)
