"""The variance of a Gaussian process by random features, against the process itself."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bayesattn.prediction.calibration.random_features import SPREAD, PrecisionSums, RandomFeatures


def test_products_of_random_features_are_the_gaussian_kernel_of_normalised_features() -> None:
    x = torch.randn(20, 6)
    random = RandomFeatures.drawn(6, 40_000)
    normalised = F.layer_norm(x, (6,))
    kernel = torch.exp(-0.5 * (SPREAD**2 / 6) * torch.cdist(normalised, normalised).square())
    assert torch.allclose(random(x) @ random(x).T, kernel, atol=0.03)


def test_the_variance_is_that_of_regression_on_the_random_features() -> None:
    """r φ^T (r I + Φ^T Φ)^-1 φ = k(x, x) - k(x, X) (K + r I)^-1 k(X, x), the process's own form."""
    train, new = torch.randn(30, 5), torch.randn(8, 5)
    random = RandomFeatures.drawn(5, 64)
    sums = PrecisionSums(random, ridge=0.1)
    for part in train.split(7):
        sums.add(part)
    a, b = random(train).double(), random(new).double()
    inner = torch.linalg.solve(a @ a.T + 0.1 * torch.eye(30, dtype=torch.float64), a @ b.T)
    expected = (b * b).sum(1) - ((b @ a.T) * inner.T).sum(1)
    assert torch.allclose(sums.fitted()(new), expected, rtol=1e-4, atol=1e-5)


def test_it_is_small_among_the_training_data_and_large_elsewhere() -> None:
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(16, generator=generator)
    train = centre + 0.1 * torch.randn(500, 16, generator=generator)
    sums = PrecisionSums(RandomFeatures.drawn(16, 256))
    sums.add(train)
    variance = sums.fitted()
    assert variance(-train).min() > 3 * variance(train).max()
    assert variance(train[:0]).shape == (0,)
    assert variance(train.view(50, 10, 16)).shape == (50, 10)
