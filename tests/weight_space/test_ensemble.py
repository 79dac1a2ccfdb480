"""Ensembles: a sample is a member."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba


def test_the_prediction_is_the_mixture_of_the_members() -> None:
    members = ba.weight_space.ensemble(lambda: nn.Linear(3, 4), n=3)
    x = torch.randn(5, 3)
    prediction = ba.predict(members, x, samples=6, max_rows=2)
    each = torch.stack([member(x) for member in members]).detach()
    torch.testing.assert_close(prediction.samples, each.repeat(2, 1, 1))
    torch.testing.assert_close(prediction.mean, each.softmax(-1).mean(0))  # probabilities, not logits
    torch.testing.assert_close(members.eval()(x), each.mean(0))


def test_a_member_may_be_random_itself() -> None:
    members = ba.weight_space.ensemble(lambda: ba.weight_space.mean_field(nn.Linear(3, 1), initial_scale=0.5), n=2)
    samples = ba.predict(members, torch.randn(4, 3), samples=6, likelihood="values").samples
    assert (samples[0::2].std(0) > 1e-3).all()


def test_with_where_all_else_is_shared() -> None:
    build = lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))  # noqa: E731
    first, second, third = ba.weight_space.ensemble(build, n=3, where="last")
    assert first[0].weight is second[0].weight is third[0].weight
    assert not torch.equal(first[2].weight, second[2].weight)


def test_it_is_trained_member_by_member() -> None:
    with pytest.raises(RuntimeError, match="for member in ensemble"):
        ba.weight_space.ensemble(lambda: nn.Linear(3, 4), n=2)(torch.randn(2, 3))
    with pytest.raises(ValueError, match="n must be a whole number"):
        ba.weight_space.ensemble(lambda: nn.Linear(3, 4), n=0)
