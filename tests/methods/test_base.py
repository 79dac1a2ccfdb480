"""How members are pooled."""

from __future__ import annotations

import torch

import bayesattn as ba
from bayesattn.methods.base import _pooled


def test_the_pooled_prediction_is_the_mixture_of_all_samples() -> None:
    parts = [ba.GaussianPrediction(torch.randn(2, 3, 4), torch.rand(2, 3, 4) + 0.5) for _ in range(3)]
    together = _pooled(list(parts))
    assert isinstance(together, ba.GaussianPrediction)
    values = torch.randn(3, 4)
    expected = torch.stack([part.log_prob(values).exp() for part in parts]).mean(0).log()
    torch.testing.assert_close(together.log_prob(values), expected)


def test_probabilities_are_averaged_and_not_logits() -> None:
    logits = torch.randn(2, 1, 5, 3)
    together = _pooled([ba.CategoricalPrediction(part) for part in logits])
    torch.testing.assert_close(together.mean, logits.softmax(-1).mean((0, 1)))
