"""A Gaussian process in place of the last layer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesattn as ba


def trained() -> tuple[nn.Sequential, Tensor, Tensor]:
    """Two classes on two sides."""
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    x[:, 0] += 2 * torch.sign(x[:, 0])
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    ba.weight_space.gp_head(model, random=128)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model.eval(), x, y


def test_it_trains_and_its_draws_have_the_variance_of_the_process() -> None:
    model, x, y = trained()
    head = model[2]
    assert isinstance(head, ba.weight_space.GaussianProcessHead)
    assert (model(x).argmax(-1) == y).float().mean() > 0.95
    with pytest.raises(RuntimeError, match=r"call ba\.weight_space\.fit_gp_head"):
        head.variance(torch.randn(2, 8))
    ba.weight_space.fit_gp_head(model, [(x[:200], y[:200]), (x[200:], y[200:])])
    hidden = model[:2](x)
    phi = head.random_features()(hidden).double()
    precision = phi.T @ phi + head.ridge * torch.eye(128, dtype=torch.float64)
    expected = head.ridge * (phi * torch.linalg.solve(precision, phi.T).T).sum(1)
    assert torch.allclose(head.variance(hidden), expected, rtol=1e-2, atol=1e-6)
    far = 20 * torch.randn(3, 4)
    samples = ba.predict(model, far, samples=3000, generator=torch.Generator().manual_seed(0)).samples
    variance = head.variance(model[:2](far)).float()
    assert torch.allclose(samples.var(0)[:, 0], variance, rtol=0.15)
    assert torch.allclose(samples.mean(0), model(far), atol=0.1)


def test_calibration_uses_the_heads_own_features_and_the_state_dict_has_all() -> None:
    model, x, y = trained()
    ba.weight_space.fit_gp_head(model, (x, y))
    knowing = ba.calibrate(model, (x, y), train=(x, y), point_estimate=True)
    assert knowing.settings.head == "2"
    hidden = model[:2](x)
    assert torch.allclose(knowing.predict(x).process_variance, model[2].variance(hidden), rtol=1e-2, atol=1e-6)
    again = ba.weight_space.gp_head(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), random=128, seed=5)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval()[2].variance(hidden), model[2].variance(hidden))


def test_what_is_no_head_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must choose one nn\.Linear.*'0' \(Conv1d\)"):
        ba.weight_space.gp_head(nn.Sequential(nn.Conv1d(1, 1, 1)))
    with pytest.raises(ValueError, match="has 0 Gaussian process heads"):
        ba.weight_space.fit_gp_head(nn.Linear(2, 2), (torch.randn(3, 2), torch.zeros(3)))


def test_the_trunk_runs_once_for_all_samples() -> None:
    model = ba.weight_space.gp_head(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), random=32)
    x = torch.randn(20, 3)
    ba.weight_space.fit_gp_head(model, (x, torch.zeros(20).long()))
    runs: list[int] = []
    model[0].register_forward_hook(lambda module, inputs, output: runs.append(len(inputs[0])))
    assert ba.predict(model, x, samples=16, generator=torch.Generator().manual_seed(0)).variance.min() > 0
    assert runs == [20]
    runs.clear()
    ba.predict(model, x, samples=16, max_rows=15)  # not 16 times, however few rows a pass may have
    assert runs == [15, 5]


def test_where_vmap_fails_samples_are_folded_one_by_one() -> None:
    class Counts(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            runs.append(len(input))
            if torch._C._functorch.maybe_current_level() is not None:
                raise RuntimeError("not under vmap")
            return super().forward(input)

    runs: list[int] = []
    model = nn.Sequential(Counts(3, 8), nn.Linear(8, 2))
    ba.weight_space.gp_head(model, random=32)
    x = torch.randn(6, 3)
    ba.weight_space.fit_gp_head(model, (x, torch.zeros(6).long()))
    for _ in range(2):
        runs.clear()
        samples = ba.predict(model, x, samples=4, max_rows=12).samples
        assert samples.shape == (4, 6, 2)
        assert samples.var(0).min() > 0
        assert max(runs) <= 12
