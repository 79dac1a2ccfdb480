"""The prior's pseudo-count; its draws are tested with the layer's."""

from __future__ import annotations

import math

import pytest
import torch

from bayesattn.nvib.prior import ComponentPrior, conditional_log_alpha


@pytest.mark.parametrize(("delta", "expected"), [(0.0, 2.0), (0.3, 2.9)])
def test_the_conditional_prior_adds_delta_for_each_token(delta: float, expected: float) -> None:
    count = torch.tensor([4.0, 1.0])
    log_alpha = conditional_log_alpha(torch.tensor(math.log(2.0)), delta, count)
    assert torch.allclose(log_alpha.exp(), torch.tensor([expected, 2.0]))


def test_an_immense_pseudo_count_can_be_drawn_from() -> None:
    prior = ComponentPrior(2, 0.0, 1.0, 1.0)
    prior.log_alpha.fill_(600.0)
    weights = prior.sample(torch.tensor([3]), 0.25, 1, None).weights
    assert torch.allclose(weights, torch.full((1, 4), 0.25))
