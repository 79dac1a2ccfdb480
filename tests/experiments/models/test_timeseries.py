"""The causal transformer of the toy series."""

from __future__ import annotations

import pytest
import torch

from bayesattn.experiments.models.timeseries import TimeSeriesTransformer


def test_a_prediction_depends_on_the_past_and_not_on_the_future() -> None:
    model = TimeSeriesTransformer(max_len=10, dim=16).eval()
    values = torch.randn(2, 10)
    changed = values.clone()
    changed[:, 6:] += 1
    for before, after in zip(model(values), model(changed), strict=True):
        torch.testing.assert_close(before[:, :6], after[:, :6])
        assert ((before[:, 6:] - after[:, 6:]).abs() > 1e-6).all()
    changed = values.clone()
    changed[:, 0] += 1
    assert ((model(values)[0] - model(changed)[0]).abs() > 1e-7).all()


def test_a_shorter_series_gets_the_same_predictions() -> None:
    model = TimeSeriesTransformer(max_len=10, dim=16).eval()
    values = torch.randn(2, 10)
    torch.testing.assert_close(model(values[:, :4])[0], model(values)[0][:, :4])


def test_a_longer_series_is_refused() -> None:
    with pytest.raises(ValueError, match="11 values is longer than max_len=10"):
        TimeSeriesTransformer(max_len=10, dim=16)(torch.randn(1, 11))
