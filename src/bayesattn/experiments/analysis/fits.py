"""Which of the five families fits a sample of weights: by likelihood, and by the thesis's sum of squared errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import signal, stats

from bayesattn.weight_space.priors import WeightPrior

HISTOGRAM_BINS = 100
COVARIANCES = 128
"""Weights of a layer whose covariances are looked at."""
LARGEST_DF = 1000.0
"""A Student-t with more degrees of freedom is a Gaussian."""


@dataclass(frozen=True)
class Fit:
    """A family fitted to a sample by maximum likelihood, around 0."""

    prior: WeightPrior
    log_likelihood: float
    """Mean over the sample."""
    squared_error: float
    """Sum over a histogram's bins of (its density - the family's)²: the thesis's criterion."""

    def frozen(self) -> Any:
        """The same as scipy's distribution."""
        return _frozen(self.prior)


def fit_families(weights: np.ndarray) -> dict[str, Fit]:
    """All five families, by name."""
    if weights.ndim != 1 or len(weights) < 10 or not np.isfinite(weights).all():
        raise ValueError("weights must be a vector of at least 10 finite numbers.")
    if np.ptp(weights) == 0:
        raise ValueError("All weights are the same number: there is nothing to fit.")
    size = np.abs(weights)
    df, _, student = stats.t.fit(weights, floc=0.0)
    scales: dict[str, tuple[float, float | None]] = {
        "gaussian": (float(np.sqrt(np.mean(weights**2))), None),
        "laplace": (float(size.mean()), None),
        "logistic": (float(stats.logistic.fit(weights, floc=0.0)[1]), None),
        "cauchy": (float(stats.cauchy.fit(weights, floc=0.0)[1]), None),
        "student": (float(student), float(min(df, LARGEST_DF))),
    }
    low, high = (float(bound) for bound in np.quantile(weights, [0.001, 0.999]))
    density, edges = np.histogram(weights, HISTOGRAM_BINS, (low, high), density=True)
    centres = (edges[1:] + edges[:-1]) / 2
    fits = {}
    for family, (scale, freedom) in scales.items():
        prior = WeightPrior(family, scale, freedom)
        frozen = _frozen(prior)
        error = float(np.sum((density - frozen.pdf(centres)) ** 2))
        fits[family] = Fit(prior, float(prior.log_density(torch.from_numpy(weights)).mean()), error)
    return fits


def best_by_likelihood(fits: dict[str, Fit], count: int) -> str:
    """The family of highest likelihood of `count` weights, by BIC: the Student-t, which has the Gaussian and the Cauchy within it and
    would win by a hair, pays for its second parameter."""

    def score(family: str) -> float:
        parameters = 1 if fits[family].prior.df is None else 2
        return fits[family].log_likelihood - 0.5 * parameters * float(np.log(count)) / count

    return max(fits, key=score)


def modes(weights: np.ndarray, points: int = 256) -> int:
    """How many modes a kernel density estimate has: peaks that stand out by at least 5 % of the highest."""
    low, high = np.quantile(weights, [0.001, 0.999])
    density = stats.gaussian_kde(weights)(np.linspace(low, high, points))
    peaks, _ = signal.find_peaks(np.concatenate([[0.0], density, [0.0]]), prominence=0.05 * density.max())
    return len(peaks)


def off_diagonal(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """The correlations of the columns of `matrix`, and the mean size of those off the diagonal."""
    spread = matrix.std(0)
    correlation = np.corrcoef(matrix[:, spread > 0], rowvar=False)
    if correlation.ndim < 2:
        return np.ones((1, 1)), 0.0
    return correlation, float(np.abs(correlation[~np.eye(len(correlation), dtype=bool)]).mean())


@dataclass(frozen=True)
class Covariances:
    """Covariances of single weights over runs, in units of the layer's variance, and those of independent Gaussian weights."""

    matrix: np.ndarray
    isotropic: np.ndarray
    """Of as many runs: what chance gives."""

    @property
    def spread(self) -> float:
        """Standard deviation of the values off the diagonal."""
        return float(off_diagonal_values(self.matrix).std())

    @property
    def spread_isotropic(self) -> float:
        """The same by chance."""
        return float(off_diagonal_values(self.isotropic).std())


def off_diagonal_values(matrix: np.ndarray) -> np.ndarray:
    """The elements of a symmetric matrix above its diagonal."""
    return matrix[np.triu_indices(len(matrix), 1)]


def covariances(weights: np.ndarray, random: np.random.Generator) -> Covariances:
    """Of the first COVARIANCES weights of [runs, ...]: neighbours stay neighbours."""
    flat = weights.reshape(len(weights), -1)[:, :COVARIANCES].astype(np.float64)
    scale = flat.std() or 1.0
    both = [np.atleast_2d(np.cov(each, rowvar=False)) for each in (flat / scale, random.standard_normal(flat.shape))]
    return Covariances(*both)


def _frozen(prior: WeightPrior) -> Any:
    kinds = {"gaussian": stats.norm, "laplace": stats.laplace, "logistic": stats.logistic, "cauchy": stats.cauchy}
    return stats.t(prior.df, scale=prior.scale) if prior.family == "student" else kinds[prior.family](scale=prior.scale)
