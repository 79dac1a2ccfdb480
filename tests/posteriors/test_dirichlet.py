"""Dirichlet attention: the density, both KLs, exact gradients."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.distributions import Dirichlet as TorchDirichlet

import bayesattn as ba
from helpers.monte_carlo import ALLOWED, DRAWS, assert_is_mean, many

SCORES = torch.tensor([1.0, -0.5, 9.0, 0.3], dtype=torch.float64)
FORMS = {
    "head": ba.Dirichlet(prior_concentration=0.9, initial_sharpness=3.0),
    "head, data": ba.Dirichlet(prior_concentration=0.9, initial_sharpness=3.0, data_dependent=True),
    "position": ba.Dirichlet(prior_concentration=0.9, initial_sharpness=3.0, max_len=6),
    "position, data": ba.Dirichlet(prior_concentration=0.9, initial_sharpness=3.0, data_dependent=True, max_len=6),
}


def scattered(form: str, **changes: object) -> ba.Dirichlet:
    """Bound, with parameters away from their start."""
    template = ba.from_config({**FORMS[form].config(), **changes})
    posterior = template.bind(num_heads=1, head_dim=2).double()
    for parameter in posterior.parameters():
        nn.init.normal_(parameter, std=0.5)
    return posterior


def concentration(posterior: ba.Dirichlet) -> Tensor:
    return posterior.log_concentration(*many(SCORES, 1)).exp().detach()[0, 0, 0, ALLOWED]


@pytest.mark.parametrize("form", FORMS)
def test_multi_gamma_kl_is_the_expected_log_ratio_of_the_unnormalised_weights(form: str) -> None:
    posterior = scattered(form)
    scores, rows = many(SCORES, DRAWS)
    with torch.no_grad():
        log_draws = posterior.log_sample(scores, rows)[:, 0, 0, ALLOWED]
        q, p = concentration(posterior), posterior.prior_concentration
        # densities of log X, in which the shared exp(log X) cancels
        ratio = (q - p) * log_draws - torch.lgamma(q) + math.lgamma(p)
        one, one_rows = many(SCORES, 1)
        assert_is_mean(ratio.sum(-1), posterior.kl(one, torch.zeros(1, 1, 4, 2), one_rows).item())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("raw_sharpness", [0.5, 3.0])
def test_dirichlet_kl_is_the_expected_log_ratio_of_the_weights(form: str, raw_sharpness: float) -> None:
    posterior = scattered(form, kl_form="dirichlet", initial_sharpness=raw_sharpness)
    scores, rows = many(SCORES, DRAWS)
    with torch.no_grad():
        weights = rows.softmax(posterior.log_sample(scores, rows))[:, 0, 0, ALLOWED].clamp_min(1e-300)
        q = TorchDirichlet(concentration(posterior), validate_args=False)
        p = TorchDirichlet(torch.full((3,), posterior.prior_concentration, dtype=torch.float64), validate_args=False)
        one, one_rows = many(SCORES, 1)
        kl = posterior.kl(one, torch.zeros(1, 1, 4, 2), one_rows).item()
        assert_is_mean(q.log_prob(weights) - p.log_prob(weights), kl)
        assert kl == pytest.approx(torch.distributions.kl_divergence(q, p).item(), rel=1e-9)
        assert kl < scattered(form).kl(one, torch.zeros(1, 1, 4, 2), one_rows).item() + 1e6  # both finite


@pytest.mark.parametrize("sharpness", [0.01, 0.5, 3.0, 100.0])
def test_each_weight_has_its_beta_distribution(sharpness: float) -> None:
    posterior = ba.Dirichlet(initial_sharpness=sharpness).bind(num_heads=1, head_dim=2)
    scores, rows = many(SCORES.float(), 50_000)
    weights = rows.softmax(posterior.log_sample(scores, rows))[:, 0, 0, ALLOWED].detach().double()
    alpha = concentration(posterior)
    for index in range(3):
        a, rest = alpha[index].item(), (alpha.sum() - alpha[index]).item()
        # near 0 and 1 float32 rounds: compare where it does not
        inner = weights[:, index].clamp(1e-6, 1 - 1e-6).numpy()
        distribution = stats.beta(a, rest)
        expected_below = distribution.cdf([1e-3, 0.1, 0.3, 0.5, 0.9, 0.999])
        observed = [(inner <= edge).mean() for edge in (1e-3, 0.1, 0.3, 0.5, 0.9, 0.999)]
        for share, exact in zip(observed, expected_below, strict=True):
            assert abs(share - exact) <= 4.5 * math.sqrt(exact * (1 - exact) / 50_000) + 1e-6
        if sharpness >= 3.0:
            assert stats.kstest(inner, distribution.cdf).pvalue > 1e-3


@pytest.mark.parametrize("sharpness", [0.01, 0.5, 3.0, 30.0])
def test_pathwise_gradient_is_the_gradient_of_the_exact_expectation(sharpness: float) -> None:
    """E[W_0²] = alpha_0 (alpha_0 + 1) / (a (a + 1)), with respect to every score and to the sharpness."""
    posterior = ba.Dirichlet(initial_sharpness=sharpness).bind(num_heads=1, head_dim=2).double()
    scores, rows = many(SCORES, DRAWS // 2)
    scores = scores.clone().requires_grad_()
    log_sharpness = torch.zeros(scores.shape[0], 1, 1, 1, dtype=torch.float64, requires_grad=True)
    from bayesattn.numerics.draws import log_gamma_rsample

    log_alpha = posterior.log_concentration(scores, rows) + log_sharpness
    weights = rows.softmax(log_gamma_rsample(log_alpha))
    estimates = torch.autograd.grad(weights[..., 0].square().sum(), [scores, log_sharpness])

    exact_scores = SCORES[ALLOWED].clone().requires_grad_()
    exact_log = torch.zeros((), dtype=torch.float64, requires_grad=True)
    a = posterior.sharpness(*many(SCORES, 1)).item() * exact_log.exp()  # pyright: ignore
    alpha = a * exact_scores.softmax(0)
    exact = torch.autograd.grad(alpha[0] * (alpha[0] + 1) / (a * (a + 1)), [exact_scores, exact_log])
    assert_is_mean(estimates[0][:, 0, 0, ALLOWED], exact[0])
    assert_is_mean(estimates[1].flatten(), exact[1].item())


def test_the_mean_weight_is_softmax() -> None:
    posterior = ba.Dirichlet(initial_sharpness=0.7).bind(num_heads=1, head_dim=2)
    scores, rows = many(SCORES, DRAWS)
    with torch.no_grad():
        weights = rows.softmax(posterior.log_sample(scores, rows))[:, 0, 0, ALLOWED]
    assert_is_mean(weights, SCORES[ALLOWED].softmax(0))


def test_the_thesis_starts_at_the_kl_of_the_sheet() -> None:
    """a = softplus(-7), prior 0.99, 24 keys, uniform: 6.3e5 nats for each row."""
    posterior = ba.Dirichlet.thesis(max_len=24).bind(num_heads=1, head_dim=2)
    q = torch.zeros(1, 1, 24, 2)
    with ba.record() as latents:
        ba.attend(q, q, q, posterior)
    assert latents.local_kl.item() / 24 == pytest.approx(6.3e5, rel=0.02)


def test_multi_gamma_is_the_sheets_value_and_its_identity_holds() -> None:
    q, p = torch.tensor([[2.0, 0.5, 1.5]]).double(), torch.tensor([[0.5, 1.0, 3.0]]).double()
    from bayesattn.numerics.formulas import gamma_kl

    multi = gamma_kl(q.log(), p.log()).sum(-1)
    dirichlet = torch.distributions.kl_divergence(TorchDirichlet(q), TorchDirichlet(p))
    totals = gamma_kl(q.sum(-1).log(), p.sum(-1).log())
    assert torch.allclose(multi, dirichlet + totals)


@pytest.mark.usefixtures("unchecked")
def test_bad_hyper_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="prior_concentration must be a finite number above 0, got -1"):
        ba.Dirichlet(prior_concentration=-1.0)
    with pytest.raises(ValueError, match="Did you mean 'dirichlet'"):
        ba.Dirichlet(kl_form="dirichlett")  # pyright: ignore[reportArgumentType]
