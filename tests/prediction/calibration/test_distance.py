"""Distances of features, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import OAS
from torch import Tensor

from bayesattn.prediction.calibration.distance import FeatureDistance, FeatureSums


def problem() -> tuple[Tensor, Tensor]:
    """Five classes far from the origin, of which number 3 does not occur."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 1, 2, 4])[torch.randint(4, (300,), generator=generator)]
    mixing = torch.randn(7, 7, generator=generator)
    noise = torch.randn(300, 7, generator=generator) @ mixing
    return 1000.0 + noise + 5.0 * torch.randn(5, 7, generator=generator)[labels], labels


def fitted(features: Tensor, labels: Tensor, batch: int = 64) -> FeatureDistance:
    sums = FeatureSums(5)
    for start in range(0, len(features), batch):
        sums.add(features[start : start + batch], labels[start : start + batch])
    return sums.fitted()


def test_distances_are_scikit_learns_with_a_class_that_does_not_occur() -> None:
    features, labels = problem()
    x, y = features.double().numpy(), labels.numpy()
    new = torch.cat([features[:20], 1000.0 + 30.0 * torch.randn(20, 7)])
    means = np.stack([x[y == c].mean(0) for c in np.unique(y)])
    centred = x - means[np.searchsorted(np.unique(y), y)]
    shared = OAS(assume_centered=True).fit(centred)
    nearest = np.min([shared.mahalanobis(new.double().numpy() - mean) for mean in means], axis=0)
    everything = OAS().fit(x).mahalanobis(new.double().numpy())
    distance = fitted(features, labels)
    assert len(distance.means) == 4
    np.testing.assert_allclose(distance.to_classes(new).numpy(), nearest, rtol=1e-6)
    np.testing.assert_allclose(distance.relative(new).numpy(), nearest - everything, rtol=1e-5, atol=1e-5)


def test_batches_and_their_order_do_not_matter() -> None:
    features, labels = problem()
    order = torch.randperm(300)
    one, other = fitted(features, labels, 300), fitted(features[order], labels[order], 7)
    assert torch.allclose(one.to_classes(features), other.to_classes(features), rtol=1e-6)


def test_positions_keep_their_place_and_nothing_gives_nothing() -> None:
    features, labels = problem()
    distance = fitted(features, labels)
    assert torch.equal(distance.to_classes(features.view(10, 30, 7)).flatten(), distance.to_classes(features))
    assert distance.to_classes(features[:0]).shape == (0,)


def test_fewer_examples_than_features_and_a_feature_that_is_always_zero() -> None:
    features = torch.randn(12, 40)
    features[:, 3] = 0.0
    sums = FeatureSums(2)
    sums.add(features, torch.arange(12) % 2)
    distance = sums.fitted()
    assert distance.to_classes(features).isfinite().all()
    assert (distance.to_classes(features + 20.0) > distance.to_classes(features)).all()


def test_what_no_distance_can_be_fitted_to_is_refused_in_words() -> None:
    features, labels = problem()
    features[5, 2] = torch.nan
    with pytest.raises(ValueError, match="train: features of the model are NaN"):
        fitted(features, labels)
    two = FeatureSums(2)
    two.add(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="do not vary within their 2 classes"):
        two.fitted()
    one = FeatureSums(1)
    one.add(torch.randn(30, 3), torch.zeros(30, dtype=torch.long))
    with pytest.raises(ValueError, match="one class"):
        one.fitted().relative(torch.randn(2, 3))
