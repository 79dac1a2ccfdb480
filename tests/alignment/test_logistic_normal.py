"""Logistic-normal alignments: the KL is that of the simplex, draws are a softmax of Gaussians, scales are the right one's."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from bayesattn.alignment import LogisticNormal
from bayesattn.alignment.logistic_normal import logistic_normal_kl
from helpers.alignment_problems import DRAWS, MASK, problem


def test_the_kl_is_that_of_the_log_ratios_to_the_last_weight() -> None:
    """log(z_i / z_T) are Gaussian with covariance sigma² (I + 1): a one-to-one picture of the simplex."""
    q, p = torch.randn(2, 3, 5).double(), torch.randn(2, 3, 5).double()
    mask = torch.tensor([[True, True, True, False, False], [True] * 5])
    found = logistic_normal_kl(q, p, 0.7, 1.3, mask)
    for example, kept in enumerate(mask):
        sides = []
        for location, sigma in ((q, 0.7), (p, 1.3)):
            scores = location[example][:, kept]
            size = scores.shape[-1] - 1
            covariance = sigma**2 * (torch.eye(size) + torch.ones(size, size)).double()
            sides.append(MultivariateNormal(scores[:, :-1] - scores[:, -1:], covariance))
        assert torch.allclose(found[example], kl_divergence(*sides))
    shifted = logistic_normal_kl(q + 100.0, p, 0.7, 1.3, mask)
    assert torch.allclose(shifted, found), "a constant added to all scores changes no weight"
    assert (logistic_normal_kl(q, p, 0.7, 1.3, torch.tensor([[False] * 5, [True] * 5]))[0] == 0).all()


@pytest.mark.parametrize(("warm_start", "sigma"), [(False, 0.5), (True, 2.0)])
def test_draws_have_the_scale_of_their_distribution_and_the_gradient_is_unbiased(
    warm_start: bool, sigma: float
) -> None:
    """Of two positions, log(z_0 / z_1) is Gaussian with mean s_0 - s_1 and variance 2 sigma²: f is its square."""
    scores = torch.tensor([0.3, -0.5], dtype=torch.float64)
    copies = scores.expand(DRAWS, 1, 2).clone().requires_grad_(True)
    other = torch.zeros_like(copies)
    prior, posterior = (copies, other) if warm_start else (other, copies)
    memory = torch.eye(2, dtype=torch.float64).expand(DRAWS, 2, 2)
    objective = LogisticNormal(0.5, 2.0, warm_start=warm_start)
    loss = objective(lambda z: (z[..., 0] / z[..., 1]).log().square(), memory, prior, posterior)
    (gradient,) = torch.autograd.grad(loss.sum(), copies)
    expected = -(0.8**2 + 2 * sigma**2)
    value = loss.detach()
    assert (value.mean() - expected).abs() <= 4 * value.std() / DRAWS**0.5
    wanted = torch.tensor([-1.6, 1.6], dtype=torch.float64)
    each = gradient[:, 0]
    assert ((each.mean(0) - wanted).abs() <= 4 * each.std(0) / DRAWS**0.5).all()


def test_eval_mode_takes_the_softmax_of_the_scores() -> None:
    small = problem()
    average = torch.einsum("bs,bsf->bf", small.log_q().exp(), small.memory[:, MASK])
    assert torch.allclose(small.run(LogisticNormal().eval())[0], -small.log_f(average[None, :, None])[0, :, 0])


def test_it_predicts_with_draws_from_the_prior_with_the_prior_s_scale() -> None:
    memory = torch.eye(2, dtype=torch.float64).unsqueeze(0)
    scores = torch.tensor([[[0.3, -0.5]]], dtype=torch.float64)
    mixture = LogisticNormal(0.1, 2.0, test_samples=50_000).mixture(memory, scores)
    mean = mixture.log_probability(lambda z: 2 * (z[..., 0] / z[..., 1]).log().abs().log()).exp()
    variance = 2 * 2.0**2
    error = (2 * variance**2 + 4 * variance * 0.8**2) ** 0.5 / 50_000**0.5
    assert (mean - (0.8**2 + variance)).abs() <= 4 * error


@pytest.mark.parametrize("name", ["sigma", "prior_sigma"])
def test_scales_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0, got 0"):
        LogisticNormal(**{name: 0.0})
