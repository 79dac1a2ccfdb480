"""Both KLs against sampling and against high precision."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from torch.distributions import Dirichlet, Normal

from bayesattn.nvib import Mixture, gaussian_kl, pseudo_count_kl
from bayesattn.nvib.divergence import symmetric_dirichlet_kl
from helpers.monte_carlo import assert_is_mean

DRAWS = 200_000


def posterior() -> Mixture:
    """A prior component (0, 1, α = 1), two tokens, and one that is padding."""
    mean = torch.tensor([[0.0, 0.0], [1.0, -2.0], [0.5, 0.3], [50.0, 50.0]])
    variance = torch.tensor([[1.0, 1.0], [0.2, 3.0], [2.0, 0.5], [9.0, 9.0]])
    alpha = torch.tensor([1.0, 2.5, 0.7, 40.0])
    mask = torch.tensor([True, True, True, False])
    return Mixture(mean[None], variance.log()[None], alpha.log()[None], mask[None])


@pytest.mark.parametrize("kappa", [1, 2])
def test_dirichlet_kl_by_sampling(kappa: int) -> None:
    delta, count, total = 0.3, 3, 4.2
    components = kappa * count
    q = Dirichlet(torch.full((components,), total / components, dtype=torch.float64))
    p = Dirichlet(torch.full((components,), (1.0 + delta * 2) / components, dtype=torch.float64))
    draws = q.sample(torch.Size([DRAWS])).clamp_min(1e-300)
    draws = draws / draws.sum(-1, keepdim=True)
    kl = pseudo_count_kl(posterior(), torch.tensor(0.0), delta=delta, kappa=kappa, normalisation="sum")
    assert_is_mean(q.log_prob(draws) - p.log_prob(draws), kl.double().item())
    paper = pseudo_count_kl(posterior(), torch.tensor(0.0), delta=delta, kappa=kappa)
    assert paper.item() == pytest.approx(kl.item() / count, rel=1e-6)


@pytest.mark.parametrize("kappa", [1, 3])
def test_gaussian_kl_by_sampling(kappa: int) -> None:
    mixture = posterior()
    assert mixture.log_variance is not None
    m, s2 = torch.tensor([0.1, -0.2]), torch.tensor([1.5, 0.8])
    q, p = Normal(mixture.mean[0], (0.5 * mixture.log_variance[0]).exp()), Normal(m, s2.sqrt())
    draws = q.sample(torch.Size([DRAWS]))
    each = q.log_prob(draws) - p.log_prob(draws)
    alpha = torch.tensor([1.0, 2.5, 0.7, 0.0])
    weights = alpha / alpha.sum()
    paper = gaussian_kl(mixture, m, s2.log(), kappa=kappa)
    assert_is_mean(kappa * (each.mean(-1) @ weights), paper)
    total = gaussian_kl(mixture, m, s2.log(), kappa=kappa, normalisation="sum")
    assert_is_mean(kappa * 3 * (each.sum(-1) @ weights), total)


def test_both_are_zero_at_the_prior() -> None:
    alike = Mixture(
        torch.zeros(1, 5, 2), torch.zeros(1, 5, 2), torch.full((1, 5), math.log(0.44)), torch.ones(1, 5).bool()
    )
    assert pseudo_count_kl(alike, torch.tensor(0.0), delta=0.3).abs().item() < 1e-6  # 5 · 0.44 = 1 + 4 · 0.3
    assert gaussian_kl(alike, torch.zeros(2), torch.zeros(2)).item() == 0
    more = Mixture(alike.mean, alike.log_variance, alike.log_weight + 1.0, alike.mask)
    assert pseudo_count_kl(more, torch.tensor(0.0), delta=0.3).item() > 0.01


def test_pseudo_counts_of_zero_count_as_components_but_weigh_nothing() -> None:
    mixture = posterior()
    log_alpha = mixture.log_weight.clone()
    log_alpha[0, 2] = -math.inf
    without = Mixture(mixture.mean, mixture.log_variance, log_alpha.requires_grad_(), mixture.mask)
    expected = symmetric_dirichlet_kl(*torch.tensor([3.5, 1.6, math.exp(3.0)], dtype=torch.float64).log()) / 3
    kl = pseudo_count_kl(without, torch.tensor(0.0), delta=0.3)
    assert kl.item() == pytest.approx(expected.item(), rel=1e-6)
    (kl.sum() + gaussian_kl(without, torch.ones(2), torch.zeros(2)).sum()).backward()
    assert log_alpha.grad is not None
    assert log_alpha.grad.isfinite().all()
    assert log_alpha.grad[0, 2] == 0


@pytest.mark.parametrize("components", [2, 51, 1026])
@pytest.mark.parametrize("log_p", [-12.0, 0.0, 4.0, 64.0])
@pytest.mark.parametrize("log_q", [-14.0, 0.0, 3.0, 9.0, 13.0, 16.0, 17.0, 60.0, 600.0])
def test_the_symmetric_kl_in_hundreds_of_digits(log_q: float, log_p: float, components: int) -> None:
    with mpmath.workdps(700):
        q, p, k = mpmath.exp(log_q), mpmath.exp(log_p), mpmath.mpf(components)
        exact = mpmath.loggamma(q) - mpmath.loggamma(p) + k * (mpmath.loggamma(p / k) - mpmath.loggamma(q / k))
        exact = float(exact + (q - p) * (mpmath.digamma(q / k) - mpmath.digamma(q)))
    logs = torch.tensor([log_q, log_p], dtype=torch.float64, requires_grad=True)
    kl = symmetric_dirichlet_kl(logs[0], logs[1], torch.tensor(float(components), dtype=torch.float64))
    assert kl.item() == pytest.approx(exact, rel=1e-6, abs=1e-6) or exact > 1e26, "beyond that the tangent"
    kl.backward()
    assert logs.grad is not None
    assert logs.grad.isfinite().all()


def test_points_have_no_gaussian_kl() -> None:
    points = Mixture(torch.zeros(1, 2, 2), None, torch.zeros(1, 2), torch.ones(1, 2).bool())
    with pytest.raises(ValueError, match="take the KL before sampling"):
        gaussian_kl(points, torch.zeros(2), torch.zeros(2))
