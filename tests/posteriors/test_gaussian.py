"""Gaussian logits: the density, the KL, the gradients to the scores and to the learned scale."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Normal

import bayesattn as ba
from bayesattn.numerics.positive import THESIS_START
from helpers.monte_carlo import ALLOWED, DRAWS, assert_is_mean, assert_same_mean, many, objective, pathwise_gradient

SCORES = torch.tensor([1.0, -0.5, 9.0, 0.3], dtype=torch.float64)
FORMS = {
    "head": ba.Gaussian(prior_sigma=0.5, initial_sigma=0.8),
    "head, data": ba.Gaussian(prior_sigma=0.5, initial_sigma=0.8, data_dependent=True),
    "position": ba.Gaussian(prior_sigma=0.5, initial_sigma=0.8, max_len=6),
    "position, data": ba.Gaussian(prior_sigma=0.5, initial_sigma=0.8, data_dependent=True, max_len=6),
}


def scattered(form: str) -> ba.Gaussian:
    """Bound, with parameters away from their start, so that every pair has its own scale."""
    posterior = FORMS[form].bind(num_heads=1, head_dim=2).double()
    for parameter in posterior.parameters():
        nn.init.normal_(parameter, std=0.5)
    return posterior


@pytest.mark.parametrize("form", FORMS)
def test_kl_is_the_expected_log_ratio(form: str) -> None:
    posterior = scattered(form)
    scores, rows = many(SCORES, DRAWS)
    one, one_rows = many(SCORES, 1)
    with torch.no_grad():
        draws = posterior.log_sample(scores, rows)[..., ALLOWED]
        sigma = posterior.sigma(one, one_rows).expand(1, 1, 1, 4)[..., ALLOWED]
        centre = SCORES[ALLOWED]
        ratio = Normal(centre, sigma).log_prob(draws) - Normal(centre, posterior.prior_sigma).log_prob(draws)
        assert_is_mean(ratio.sum((1, 2, 3)), posterior.kl(one, torch.zeros(1, 1, 4, 2), one_rows).item())


@pytest.mark.parametrize("form", FORMS)
def test_draws_are_normal_around_the_scores(form: str) -> None:
    posterior = scattered(form)
    scores, rows = many(SCORES, 50_000)
    sigma = posterior.sigma(*many(SCORES, 1)).expand(1, 1, 1, 4)[0, 0, 0, 3].item()
    draws = (posterior.log_sample(scores, rows)[:, 0, 0, 3] - SCORES[3]) / sigma
    assert stats.kstest(draws.detach().numpy(), "norm").pvalue > 1e-3


def test_gradients_to_scores_and_scale_agree_with_the_score_function_estimator() -> None:
    posterior = FORMS["head"].bind(num_heads=1, head_dim=2).double()
    scores, rows = many(SCORES, DRAWS)
    scores = scores.clone().requires_grad_()
    log_draws = posterior.log_sample(scores, rows)
    sigma = posterior.sigma(scores, rows).item()
    pathwise = pathwise_gradient(log_draws, rows, scores)[..., ALLOWED]
    # d W / d sigma is d W / d log S · epsilon: the gradient to the scores times the noise
    noise = ((log_draws - scores) / sigma).detach()[..., ALLOWED]
    to_scale = (pathwise * noise).sum(-1)
    with torch.no_grad():
        values = objective(rows.softmax(log_draws))
        centred = values - values.mean()
        assert_same_mean(pathwise, centred.unsqueeze(-1) * noise / sigma)
        assert_same_mean(to_scale, centred * (noise.square() - 1.0).sum(-1) / sigma)
    # and the parameter itself gets that gradient, through softplus
    raw = next(posterior.parameters())
    torch.manual_seed(1)
    total = objective(rows.softmax(posterior.log_sample(scores.detach(), rows))).mean()
    (gradient,) = torch.autograd.grad(total, raw)
    expected = to_scale.mean().item() * torch.sigmoid(raw).item()
    assert gradient.item() == pytest.approx(expected, abs=6 * to_scale.std().item() / math.sqrt(DRAWS))


def test_the_kl_has_no_gradient_to_the_logits_and_is_zero_at_the_prior() -> None:
    posterior = ba.Gaussian(prior_sigma=0.4, initial_sigma=0.4).bind(num_heads=1, head_dim=2).double()
    nn.init.constant_(next(posterior.parameters()), math.log(math.expm1(0.4)))
    one, rows = many(SCORES, 1)
    one = one.clone().requires_grad_()
    kl = posterior.kl(one, torch.zeros(1, 1, 4, 2), rows)
    assert kl.item() == pytest.approx(0.0, abs=1e-12)
    assert torch.autograd.grad(kl.sum(), one, allow_unused=True)[0] is None


def test_the_thesis_starts_at_6_5_nats_for_each_logit() -> None:
    posterior = ba.Gaussian.thesis(max_len=4).bind(num_heads=1, head_dim=2)
    one, rows = many(SCORES.float(), 1)
    kl = posterior.kl(one, torch.zeros(1, 1, 4, 2), rows).item() / 3
    assert kl == pytest.approx(6.51, abs=0.03)
    assert pytest.approx(math.log1p(math.exp(-7))) == THESIS_START


def test_length_free_scales_do_not_depend_on_padding() -> None:
    posterior = ba.Gaussian(data_dependent=True).bind(num_heads=2, head_dim=4)
    nn.init.normal_(posterior.scale.outer.weight)  # pyright: ignore
    q = torch.randn(2, 2, 6, 4)
    mask = torch.tensor([True, True, True, True, False, False])
    torch.manual_seed(0)
    with ba.record() as padded:
        ba.attend(q, q, q, posterior, mask[None, None, None], query_mask=mask.expand(2, 6))
    with ba.record() as short:
        ba.attend(q[:, :, :4], q[:, :, :4], q[:, :, :4], posterior)
    assert torch.allclose(padded.local_kl, short.local_kl, rtol=1e-5)


def test_bad_hyper_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="prior_sigma must be a finite number above 0"):
        ba.Gaussian(prior_sigma=0.0)
    with pytest.raises(ValueError, match="max_len must be a whole number of at least 1"):
        ba.Gaussian(max_len=0)
    with pytest.raises(ValueError, match="keep their ratio below 1e15"):
        ba.Gaussian(prior_sigma=1e-15, initial_sigma=10.0)
