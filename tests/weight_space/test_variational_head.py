"""A variational last layer: its bound is the paper's, below the likelihood, and its KL is right."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bayesattn as ba
from bayesattn.weight_space import VariationalHead


def _head(scale: float = 0.4) -> VariationalHead:
    torch.manual_seed(0)
    head = VariationalHead(5, 3, prior_scale=0.8, initial_scale=scale)
    nn.init.normal_(head.weight)
    return head


def test_nll_and_what_is_recorded_are_the_papers_bound() -> None:
    head, x, y = _head(), torch.randn(7, 5), torch.randint(3, (7,))
    with ba.record() as latents:
        logits = head(x)
    nll = F.cross_entropy(logits, y, reduction="none")
    variance = x.square() @ head.log_scale.exp().square().T
    printed = logits[range(7), y] - (logits + variance / 2).logsumexp(-1)  # Harrison et al., eq. of theorem 2
    torch.testing.assert_close(-(nll + latents.local_kl), printed)
    loss = ba.elbo(nll, latents, dataset_size=100)
    torch.testing.assert_close(loss.loss, -printed.mean() + head.kl() / 100)


def test_the_bound_is_below_the_expected_log_likelihood() -> None:
    head, x, y = _head(), torch.randn(7, 5), torch.randint(3, (7,))
    with ba.record() as latents:
        bound = -(F.cross_entropy(head(x), y, reduction="none") + latents.local_kl)
    drawn = ba.predict(head, x, samples=20_000, max_rows=200_000, generator=torch.Generator().manual_seed(0))
    expected = drawn.samples.log_softmax(-1)[:, range(7), y].mean(0)
    assert (bound < expected + 0.02).all()
    torch.testing.assert_close(drawn.samples.var(0), head.variances(x).detach(), rtol=0.06, atol=0.01)


def test_kl_is_that_of_monte_carlo() -> None:
    head = _head()
    q = torch.distributions.Normal(head.weight, head.log_scale.exp())
    p = torch.distributions.Normal(0.0, 0.8)
    draws = q.sample((20_000,))
    estimate = (q.log_prob(draws) - p.log_prob(draws)).sum((1, 2))
    assert abs(head.kl().item() - estimate.mean().item()) < 4 * estimate.std().item() / 20_000**0.5


def test_trained_in_place_of_a_head() -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    model = ba.weight_space.vbll_head(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    start = model[2].variance(model[:2](x)).mean().item()
    for _ in range(150):
        with ba.record() as latents:
            nll = F.cross_entropy(model(x), y, reduction="none")
        optimiser.zero_grad()
        ba.elbo(nll, latents, dataset_size=len(x)).backward()
        optimiser.step()
    assert (ba.predict(model, x, samples=16).label == y).float().mean() > 0.9
    assert model[2].variance(model[:2](x)).mean().item() > 2 * start  # towards the prior where the data do not speak


def test_refused() -> None:
    with pytest.raises(ValueError, match="which positions are padding"):
        _head()(torch.randn(2, 3, 5))
    with pytest.raises(ValueError, match=r"must choose one nn\.Linear"):
        ba.weight_space.vbll_head(nn.Sequential(nn.Conv1d(1, 1, 1)))
    with pytest.raises(ValueError, match="prior_scale"):
        ba.weight_space.vbll_head(nn.Sequential(nn.Linear(2, 2)), prior_scale=0.0)
