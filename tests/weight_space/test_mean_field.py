"""Mean-field inference: its optimum where it is known, its start, its priors, its refusals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.experiments.models.timeseries import TimeSeriesTransformer
from bayesattn.weight_space.layers import WeightPosterior

NOISE, PRIOR_SCALE = 0.5, 0.8


def posterior_of(module: nn.Module, name: str) -> WeightPosterior:
    found = module.weight_posteriors[name]  # pyright: ignore[reportIndexIssue, reportArgumentType]
    assert isinstance(found, WeightPosterior)
    return found


def regression() -> tuple[Tensor, Tensor]:
    """Inputs that are correlated, so that the posterior is not mean-field itself."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.tensor([[1.0, 0.6, 0.0], [0.0, 1.0, 0.4], [0.0, 0.0, 1.0]])
    x = torch.randn(40, 3, generator=generator) @ mixing
    y = x @ torch.tensor([1.0, -0.5, 0.3]) + NOISE * torch.randn(40, generator=generator)
    return x, y


def fitted(family: str, steps: int) -> nn.Linear:
    x, y = regression()
    model = nn.Linear(3, 1, bias=False)
    ba.weight_space.mean_field(model, family, ba.weight_space.WeightPrior("gaussian", PRIOR_SCALE), initial_scale=0.1)
    copies = 32  # in place of as many draws
    many_x, many_y = x.repeat(copies, 1), y.repeat(copies)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    for _ in range(steps):
        with ba.record() as latents:
            nll = 0.5 * ((model(many_x).squeeze(1) - many_y) / NOISE).square()
        optimiser.zero_grad()
        ba.elbo(nll, latents, dataset_size=len(x)).backward()
        optimiser.step()
        schedule.step()
    return model


def test_gaussian_mean_field_reaches_the_optimum_of_bayesian_linear_regression() -> None:
    """The optimum has the exact mean and the variances 1 / precision_ii, smaller than the exact marginal ones."""
    x, y = regression()
    precision = x.T @ x / NOISE**2 + torch.eye(3) / PRIOR_SCALE**2
    mean = torch.linalg.solve(precision, x.T @ y / NOISE**2)
    model = fitted("gaussian", 600)
    scale = posterior_of(model, "weight").scale[0]
    torch.testing.assert_close(model.weight[0], mean, rtol=0, atol=0.01)
    torch.testing.assert_close(scale, precision.diagonal().rsqrt(), rtol=0.05, atol=0)
    exact = torch.linalg.inv(precision).diagonal().sqrt()
    assert (scale < 0.97 * exact).any()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["laplace", "logistic", "student"])
def test_other_families_reach_the_same_mean(family: str) -> None:
    x, y = regression()
    precision = x.T @ x / NOISE**2 + torch.eye(3) / PRIOR_SCALE**2
    mean = torch.linalg.solve(precision, x.T @ y / NOISE**2)
    torch.testing.assert_close(fitted(family, 3000).weight[0], mean, rtol=0, atol=0.05)


def test_the_thesis_start() -> None:
    model = ba.weight_space.mean_field(TimeSeriesTransformer(24, 32), "student", initial_df=6.0)
    posterior = posterior_of(model.encoder.layers[0].linear1, "weight")
    assert posterior.raw_scale.mean().item() == pytest.approx(-7.0, abs=0.002)
    assert posterior.raw_scale.std().item() == pytest.approx(0.01, rel=0.05)
    assert posterior.df is not None
    torch.testing.assert_close(posterior.df, torch.full_like(posterior.df, 6.0))
    weight = model.encoder.layers[0].linear1.weight
    bound = math.sqrt(6 / (32 + 128))
    assert bound * 0.98 < weight.abs().max().item() <= bound  # Glorot-uniform
    assert torch.equal(model.encoder.layers[0].norm1.weight, torch.ones(32))


def test_a_trained_model_is_a_start_as_in_moped() -> None:
    plain = nn.Linear(5, 4)
    before = plain.weight.detach().clone()
    model = ba.weight_space.mean_field(
        plain, "gaussian", ba.weight_space.WeightPrior(scale=2.0), start="model", relative_scale=0.1, centre_prior=True
    )
    assert torch.equal(model.weight, before)
    posterior = posterior_of(model, "weight")
    torch.testing.assert_close(posterior.scale, 0.1 * before.abs())
    expected = torch.distributions.kl_divergence(
        torch.distributions.Normal(0.0, posterior.scale), torch.distributions.Normal(0.0, 2.0)
    ).sum()
    torch.testing.assert_close(posterior.kl(model.weight), expected)  # the prior's centre is where it started


def test_priors_by_group_reach_their_parameters() -> None:
    priors = ba.weight_space.thesis_priors("M1")
    model = ba.weight_space.mean_field(TimeSeriesTransformer(6, 8, feedforward=8), "gaussian", priors)
    assert posterior_of(model.head, "weight").prior == ba.weight_space.WeightPrior("cauchy", 0.6)
    assert posterior_of(model, "positions").prior == ba.weight_space.WeightPrior("student", 0.03, 13.0)
    with ba.record() as latents:
        model(torch.randn(2, 6))
    assert latents.global_kl.isfinite()


def test_a_sub_network_leaves_the_rest_as_it_was() -> None:
    torch.manual_seed(0)
    plain = TimeSeriesTransformer(6, 8, feedforward=8)
    before = {key: value.clone() for key, value in plain.state_dict().items()}
    model = ba.weight_space.mean_field(plain, "logistic", where="attention")
    random = {name for name, module in model.named_modules() if isinstance(module, WeightPosterior)}
    assert {name.replace(".weight_posteriors", "") for name in random} == {key for key in before if "self_attn" in key}
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items() if "self_attn" not in key)


def test_estimates_of_the_kl_are_unbiased_and_less_noisy_with_more_samples() -> None:
    prior = ba.weight_space.WeightPrior("student", 0.5, 4.0)
    spread = []
    for samples in (1, 16):
        model = ba.weight_space.mean_field(nn.Linear(3, 2), "laplace", prior, initial_scale=0.4, kl_samples=samples)
        nn.init.constant_(model.weight, 0.2)
        with torch.no_grad():
            estimates = torch.stack([posterior_of(model, "weight").kl(model.weight) for _ in range(300)])
        spread.append(estimates)
    error = (spread[0].var() / 300 + spread[1].var() / 300).sqrt()
    assert abs(spread[0].mean() - spread[1].mean()) < 4 * error
    assert spread[1].var() * 8 < spread[0].var()


def test_what_cannot_be_done_is_refused_before_anything_changes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2))
    with pytest.raises(ValueError, match="Layer '1' is a LSTM"):
        ba.weight_space.mean_field(model)
    with pytest.raises(ValueError, match=r"matches the parameter '1.weight_ih_l0'|Layer '1' is a LSTM"):
        ba.weight_space.mean_field(model, prior={"0.*": ba.weight_space.WeightPrior()})
    assert type(model[0]) is nn.Linear
    ba.weight_space.mean_field(model, where="0")
    with pytest.raises(ValueError, match="layer '0' are random already"):
        ba.weight_space.mean_field(model, where="0")
    with pytest.raises(ValueError, match="Did you mean 'logistic'"):
        ba.weight_space.mean_field(nn.Linear(2, 2), "logistc")
    with pytest.raises(ValueError, match="initial_df must be above 2"):
        ba.weight_space.mean_field(nn.Linear(2, 2), "student", initial_df=1.5)
    with ba.record() as latents:
        output = model[0](torch.randn(3, 2))
    with pytest.raises(ValueError, match="pass dataset_size="):
        ba.elbo(output.square().sum(1), latents)
