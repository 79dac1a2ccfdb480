"""Snapshots: each sample is the network at the end of a cycle."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.weight_space import snapshot_rate, snapshots, take_snapshot


def test_samples_are_the_kept_networks() -> None:
    model, x = snapshots(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), n=3), torch.randn(5, 3)
    kept = []
    for _ in range(3):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        take_snapshot(model)
        kept.append(model(x).detach())
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    torch.testing.assert_close(ba.predict(model, x, samples=3).samples, torch.stack(kept))
    assert not torch.allclose(model.eval()(x), kept[-1])  # the point estimate is the network itself
    other = copy.deepcopy(model)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(ba.predict(other, x, samples=3).samples, torch.stack(kept))


def test_the_rate_falls_to_nothing_at_the_end_of_every_cycle() -> None:
    rates = [snapshot_rate(step / 300, 3) for step in range(300)]
    assert all(rates[cycle * 100] == pytest.approx(1.0) for cycle in range(3))
    assert all(rates[cycle * 100 + 99] < 1e-3 for cycle in range(3))
    assert sum(rates) / 300 == pytest.approx(0.5, abs=0.01)


def test_refused() -> None:
    model = snapshots(nn.Linear(2, 2), n=2)
    with pytest.raises(RuntimeError, match="No snapshot was taken"):
        ba.predict(model, torch.randn(1, 2), samples=2)
    with pytest.raises(ValueError, match="keeps snapshots already"):
        snapshots(model)
    with pytest.raises(ValueError, match="keeps no snapshots"):
        take_snapshot(nn.Linear(2, 2))
    take_snapshot(model)
    take_snapshot(model)
    with pytest.raises(RuntimeError, match="All 2 snapshots are taken"):
        take_snapshot(model)
