"""How far features lie from those of the training data: Mahalanobis distances (Lee et al. 2018; relative: Ren et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.support.annotations import Float, Int


class FeatureSums:
    """What the distances need of the training features: sums in float64, in one pass, in memory of (features² + classes · features).

    Args:
        classes: how many; 1 for a model without classes.
    """

    def __init__(self, classes: int):
        self.classes = classes
        self.shift: Tensor | None = None

    def add(self, features: Float[Tensor, "rows features"], labels: Int[Tensor, " rows"]) -> None:
        """Count these rows in."""
        if not len(features):
            return
        if not bool(features.isfinite().all()):
            raise ValueError("train: features of the model are NaN or infinite; no distance can be fitted to them.")
        rows = features.double().cpu()
        where = labels.cpu()
        if self.shift is None:  # sums about a point among the data: large means cost no digits
            self.shift = rows.mean(0)
            self.counts = torch.zeros(self.classes, dtype=torch.float64)
            self.sums = torch.zeros(self.classes, rows.shape[1], dtype=torch.float64)
            self.products = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
        rows = rows - self.shift
        self.counts.index_add_(0, where, torch.ones(len(rows), dtype=torch.float64))
        self.sums.index_add_(0, where, rows)
        self.products += rows.T @ rows

    def fitted(self) -> FeatureDistance:
        """The distance from what was counted."""
        if self.shift is None:
            raise ValueError("train holds no example that counts.")
        total = self.counts.sum()
        there = self.counts > 0
        means = self.sums[there] / self.counts[there].unsqueeze(1)
        mean = self.sums.sum(0) / total
        between = (means * self.counts[there].unsqueeze(1)).T @ means
        within = (self.products - between) / total
        around = self.products / total - torch.outer(mean, mean)
        if not within.trace() > 1e-12 * self.products.trace() / total:
            raise ValueError(
                f"train: the {int(total)} features do not vary within their {int(there.sum())} classes, so no distance from them can be "
                "measured: pass more training examples."
            )
        samples = int(total)
        background = _whitening(around, samples) if len(means) > 1 else None
        return FeatureDistance(means + self.shift, _whitening(within, samples), mean + self.shift, background)


@dataclass(frozen=True)
class FeatureDistance:
    """Gaussians of the training features: one for each class that occurs, with one covariance for all; and one for all together.

    Covariances are shrunk towards a multiple of the identity by Chen et al.'s oracle approximation (scikit-learn's `OAS`), which needs
    no second look at the data as Ledoit and Wolf's does.
    """

    means: Float[Tensor, "classes features"]
    whitening: Float[Tensor, "features features"]
    """W with W W^T the inverse covariance."""
    mean: Float[Tensor, " features"]
    background: Float[Tensor, "features features"] | None
    """The same for all together; None with one class."""

    def to_classes(self, features: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape"]:
        """(h - μ_c)^T Σ^-1 (h - μ_c) for the nearest class: the squared Mahalanobis distance."""
        self._check(features)
        whitening, mean = self.whitening.to(features.device), self.mean.to(features.device)
        rows = (features.flatten(0, -2).double() - mean) @ whitening
        means = (self.means.to(features.device) - mean) @ whitening
        # not cdist: it multiplies (a - b)² out, and loses the digits of a small one
        found = [(part.unsqueeze(1) - means).square().sum(-1).amin(1) for part in rows.split(256)]
        return torch.cat(found).view(features.shape[:-1])

    def relative(self, features: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape"]:
        """The distance to the nearest class less that to all together: large where a feature is odd for a class, and not in general."""
        if self.background is None:
            raise ValueError(
                "The relative distance compares classes with all together; the training data have one class."
            )
        background = (features.double() - self.mean.to(features.device)) @ self.background.to(features.device)
        return self.to_classes(features) - background.square().sum(-1)

    def _check(self, features: Tensor) -> None:
        if features.shape[-1] != len(self.mean):
            raise ValueError(
                f"The distance is of {len(self.mean)} features, the model's head takes {features.shape[-1]}."
            )


def shrunk(covariance: Float[Tensor, "n n"], samples: int) -> Float[Tensor, "n n"]:
    """The covariance, shrunk: (1 - ρ) S + ρ tr(S)/n I, ρ by the oracle approximation for this number of samples."""
    size = len(covariance)
    mean = covariance.trace() / size
    alpha = covariance.square().mean()
    numerator = alpha + mean**2
    denominator = (samples + 1.0) * (alpha - mean**2 / size)
    share = 1.0 if denominator <= 0 else min(1.0, (numerator / denominator).item())
    return (1.0 - share) * covariance + share * mean * torch.eye(size, dtype=covariance.dtype)


def _whitening(covariance: Tensor, samples: int) -> Tensor:
    values, vectors = torch.linalg.eigh(shrunk(covariance, samples))
    # directions without any variance (a feature that is always 0): bounded as float64 can hold the others
    return vectors * values.clamp_min(values[-1] * 1e-12).rsqrt()
