"""What BAM says does not work, made right: the draws and the KLs are those of the distributions."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence

import bayesattn as ba
from bayesattn.experiments.methods.unstable import GaussianWeights, SampledKLWeibull
from bayesattn.experiments.runs import configure
from bayesattn.experiments.tasks import TASKS
from bayesattn.posteriors.rows import DenseRows
from helpers.alignment_problems import DRAWS, MASK, problem


def test_gaussian_weights_have_their_mean_and_scale_and_do_not_sum_to_one() -> None:
    small = problem(DRAWS)
    memory = torch.eye(4, dtype=torch.float64).expand(DRAWS, 4, 4)
    drawn: list[torch.Tensor] = []

    def likelihood(contexts: torch.Tensor) -> torch.Tensor:
        drawn.append(contexts[0, :, 0].detach())
        return contexts[..., 0]

    GaussianWeights(sigma=0.3)(likelihood, memory, small.prior, source_mask=small.mask)
    (weights,) = drawn
    assert (weights[:, ~MASK] == 0).all()
    kept = weights[:, MASK]
    assert ((kept.mean(0) - small.log_p()[0].exp()).abs() < 4 * 0.3 / DRAWS**0.5).all()
    assert torch.allclose(kept.std(0), torch.tensor(0.3).double(), rtol=0.02)
    assert kept.sum(1).std() == pytest.approx(0.3 * 3**0.5, rel=0.02)
    assert (kept < 0).any()
    GaussianWeights(sigma=0.3, renormalise=True)(likelihood, memory, small.prior, source_mask=small.mask)
    assert torch.allclose(drawn[1].sum(1), torch.ones(DRAWS).double(), atol=1e-6)


def test_their_kl_is_that_of_gaussians_around_equal_weights() -> None:
    small = problem()
    _, kl = small.run(GaussianWeights(sigma=0.3, prior_sigma=0.7))
    wanted = kl_divergence(Normal(small.log_p().exp(), 0.3), Normal(1 / 3, 0.7)).sum()
    torch.testing.assert_close(kl.double(), wanted.reshape(1), check_dtype=False)
    loss, _ = small.run(GaussianWeights(sigma=0.3).eval())
    assert torch.equal(loss, small.run(ba.alignment.Soft())[0]), "in eval mode it is soft attention"


@pytest.mark.parametrize("kl_scores", ["normalised", "raw"])
def test_the_sampled_kl_is_unbiased(kl_scores: str) -> None:
    prior = ba.GammaPrior(alpha=0.8, beta=1.5)
    closed = ba.Weibull(2.0, prior, kl_scores)  # pyright: ignore[reportArgumentType]
    sampled = SampledKLWeibull(2.0, prior, kl_scores)  # pyright: ignore[reportArgumentType]
    copies = 50_000
    scores = torch.randn(1, 1, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    many = scores.expand(copies, 1, 2, 3).clone().requires_grad_(True)
    rows = DenseRows((copies, 1, 2, 3), None, None)
    found = sampled.kl(many, torch.zeros(copies, 1, 3, 4), rows)
    one = scores.clone().requires_grad_(True)
    wanted = closed.kl(one, torch.zeros(1, 1, 3, 4), DenseRows((1, 1, 2, 3), None, None))
    assert (found.mean() - wanted).abs() <= 4 * found.std() / copies**0.5
    (gradients,) = torch.autograd.grad(found.sum(), many)
    (gradient,) = torch.autograd.grad(wanted.sum(), one)
    error = gradients.std(0) / copies**0.5
    assert ((gradients.mean(0) - gradient[0]).abs() <= 4 * error + 1e-9).all()


def test_the_methods_options_reach_them() -> None:
    method = configure("cora", "bam-wc-sampled-kl", method_options={"k": 3.0, "kl_form": "printed"}).make_method()
    posterior = method.posterior(TASKS.create("cora"))  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(posterior, SampledKLWeibull)
    assert (posterior.k, posterior.kl_scores, posterior.has_fused_form) == (3.0, "raw", False)
    weights = configure(
        "multi30k", "gaussian-weights", method_options={"sigma": 0.5, "renormalise": True}
    ).make_method()
    objective = weights.make(weights.options)  # pyright: ignore[reportAttributeAccessIssue]
    assert (objective.sigma, objective.renormalise) == (0.5, True)
