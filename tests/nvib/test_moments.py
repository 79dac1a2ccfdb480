"""The empirical prior."""

from __future__ import annotations

import math

import pytest
import torch

from bayesattn.nvib.moments import Moments
from bayesattn.nvib.prior import ComponentPrior


def test_it_is_the_mean_and_variance_of_all_tokens_that_are_no_padding() -> None:
    x = 2.0 * torch.randn(4, 5, 6) + torch.arange(6.0)
    padding = torch.zeros(4, 5, dtype=torch.bool)
    padding[2, 3:] = True
    moments, prior = Moments(), ComponentPrior(6, 0.0, 1.0, 1.0)
    moments.observe(x[:2], None, head_dim=3)
    moments.observe(x[2:], padding[2:], head_dim=3)
    moments.to_prior(prior)
    tokens = x[~padding]
    counts = tokens.square().sum(-1) / (2.0 * math.sqrt(3))
    assert torch.allclose(prior.mean, tokens.mean(0), atol=1e-5)
    assert torch.allclose(prior.log_variance.exp(), tokens.var(0, correction=0), rtol=1e-4)
    assert torch.allclose(prior.log_alpha, counts.mean())
    assert torch.allclose(prior.log_alpha_spread, counts.std(correction=0), rtol=1e-4)


def test_vectors_of_one_length_leave_the_unit_at_one() -> None:
    x = torch.nn.functional.normalize(torch.randn(4, 5, 6), dim=-1)
    moments, prior = Moments(), ComponentPrior(6, 0.0, 1.0, 1.0)
    moments.observe(x, None, head_dim=3)
    moments.to_prior(prior)
    assert prior.log_alpha_spread.item() == 1.0


def test_one_token_is_not_enough() -> None:
    moments = Moments()
    moments.observe(torch.zeros(1, 1, 6), None, head_dim=3)
    with pytest.raises(ValueError, match="at least 2 tokens, 1 were seen"):
        moments.to_prior(ComponentPrior(6, 0.0, 1.0, 1.0))
