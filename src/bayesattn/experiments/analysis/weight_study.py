"""The thesis's study of trained weights: many maximum-likelihood runs, and what their weights are distributed like, layer by layer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesattn.experiments.analysis.fits import (
    Covariances,
    Fit,
    best_by_likelihood,
    covariances,
    fit_families,
    modes,
    off_diagonal,
)
from bayesattn.experiments.runs import RunConfig, RunFolder, configure
from bayesattn.support.files import write_atomically
from bayesattn.weight_space import WeightPrior, save_priors

FITTED = 20_000
"""Weights of a layer that the families are fitted to, drawn from all runs."""
SMOOTHED = 3_000
"""Weights that the kernel density estimate is made of."""
PROJECTIONS = "in_proj_weight"
"""Torch's name for the projections to queries, keys and values, one below the other."""
SMALLEST_SCALE = 1e-4
"""Scale of a fitted prior where training leaves the weights at 0."""


@dataclass(frozen=True)
class LayerStudy:
    """What the weights of one parameter are like, over all runs."""

    name: str
    runs: int
    weights: int
    scale: float
    """Standard deviation."""
    df: float
    """Degrees of freedom of the fitted Student-t: small values are heavy tails."""
    best_by_error: str
    best_by_likelihood: str
    modes: int
    off_diagonal: float
    """Mean size of the correlations between the weights of different inputs, over outputs and runs."""
    off_diagonal_isotropic: float
    """The same of isotropic Gaussian weights of the same shape: what chance gives."""
    fits: dict[str, Fit]
    sample: np.ndarray
    correlation: np.ndarray
    covariances: Covariances
    """Between single weights, over runs."""

    def to_json(self) -> dict[str, Any]:
        """Without the arrays."""
        kept = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("fits", "sample", "correlation", "covariances")
        }
        kept["covariance_spread"] = self.covariances.spread
        kept["covariance_spread_isotropic"] = self.covariances.spread_isotropic
        kept["fits"] = {
            name: {
                "scale": fit.prior.scale,
                "df": fit.prior.df,
                "log_likelihood": fit.log_likelihood,
                "squared_error": fit.squared_error,
            }
            for name, fit in self.fits.items()
        }
        return kept


def study_configs(task: str, runs: int, training: dict[str, Any] | None = None) -> list[RunConfig]:
    """The maximum-likelihood runs of a study."""
    return [configure(task, "mle", seed, training=training) for seed in range(runs)]


def collect_weights(configs: Sequence[RunConfig], folder: Path) -> dict[str, np.ndarray]:
    """Parameter → [runs, its shape], of the runs that have finished."""
    collected: dict[str, list[np.ndarray]] = {}
    for config in configs:
        run = RunFolder.of(folder, config)
        if run.result() is not None:
            for key, value in run.read_model().items():
                collected.setdefault(key.partition(".")[2], []).append(value.numpy())
    if not collected:
        raise FileNotFoundError(f"No run of the study has finished in {folder}.")
    return {name: np.stack(values) for name, values in collected.items()}


def study_layer(name: str, weights: np.ndarray, seed: int = 0) -> LayerStudy:
    """One parameter with at least two dimensions, [runs, outputs, inputs]."""
    random = np.random.default_rng(seed)
    flat = weights.ravel().astype(np.float64)
    sample = random.choice(flat, min(FITTED, len(flat)), replace=False)
    fits = fit_families(sample)
    rows = weights.reshape(-1, weights.shape[-1]).astype(np.float64)
    correlation, size = off_diagonal(rows)
    _, chance = off_diagonal(random.standard_normal(rows.shape))
    return LayerStudy(
        name=name,
        runs=len(weights),
        weights=len(flat),
        scale=float(flat.std()),
        df=float(fits["student"].prior.df or np.inf),
        best_by_error=min(fits, key=lambda family: fits[family].squared_error),
        best_by_likelihood=best_by_likelihood(fits, len(sample)),
        modes=modes(sample[:SMOOTHED]),
        off_diagonal=size,
        off_diagonal_isotropic=chance,
        fits=fits,
        sample=sample,
        correlation=correlation,
        covariances=covariances(weights, random),
    )


def study(weights: dict[str, np.ndarray]) -> list[LayerStudy]:
    """Every matrix of the model; of attention's projection of its inputs, which is one parameter, queries, keys and values too."""
    matrices = {name: values for name, values in weights.items() if values.ndim >= 3}
    for name, values in list(matrices.items()):
        if name.endswith(PROJECTIONS):
            thirds = zip(("query", "key", "value"), np.split(values, 3, axis=1), strict=True)
            matrices |= {name.removesuffix(PROJECTIONS) + part: third for part, third in thirds}
    return [study_layer(name, values) for name, values in sorted(matrices.items())]


def priors_of_study(weights: dict[str, np.ndarray], layers: Sequence[LayerStudy]) -> dict[str, WeightPrior]:
    """A preset for `mean_field`: each matrix has its best family by likelihood, each vector a Gaussian of its own size.

    Weights of layer norms, which start at 1, keep a Gaussian of scale 1.
    """
    best = {layer.name: layer.fits[layer.best_by_likelihood].prior for layer in layers}
    priors: dict[str, WeightPrior] = {}
    for name, values in weights.items():
        if name in best:
            priors[name] = best[name]
        else:
            size = float(np.sqrt(np.mean(values.astype(np.float64) ** 2)))
            priors[name] = WeightPrior("gaussian", 1.0 if "norm" in name else max(size, SMALLEST_SCALE))
    return priors


def write_study(task: str, layers: Sequence[LayerStudy], priors: dict[str, WeightPrior], folder: Path) -> Path:
    """`study.json` and `priors.json` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"task": task, "layers": [layer.to_json() for layer in layers]}
    write_atomically(folder / "study.json", json.dumps(figures, indent=2) + "\n")
    save_priors(priors, folder / "priors.json")
    return folder
