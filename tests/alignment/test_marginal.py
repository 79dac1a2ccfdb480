"""The marginal is exact, above every bound, and K-max with all positions is the marginal."""

from __future__ import annotations

import pytest
import torch

import bayesattn as ba
from bayesattn.alignment import Gumbel, Hard, Importance, Marginal, Objective, Variational
from helpers.alignment_problems import problem


def test_it_is_the_logarithm_of_the_sum() -> None:
    small = problem()
    loss, kl = small.run(Marginal())
    assert torch.allclose(loss, -(small.log_p().exp() * small.every_log_f().exp()).sum(-1).log())
    assert (kl == 0).all()


@pytest.mark.parametrize("objective", [Hard(), Variational(), Gumbel()])
def test_it_is_above_every_bound(objective: Objective) -> None:
    for seed in range(20):
        small = problem(seed=seed)
        marginal = -small.run(Marginal())[0]
        loss, kl = small.run(objective.eval())
        assert (-(loss + kl) <= marginal + 1e-12).all()


def test_the_multi_sample_bound_lies_between_the_elbo_and_the_marginal() -> None:
    many = problem(20_000)
    with torch.no_grad():
        marginal = -many.run(Marginal())[0][0]
        elbo = -sum(many.run(Variational()))[0]
        means, errors = [], []
        for samples in (2, 8):
            bound = -many.run(Importance(samples))[0]
            means.append(bound.mean())
            errors.append(bound.std() / len(bound) ** 0.5)
    assert elbo < means[0] - 4 * errors[0]
    assert means[0] + 4 * errors[0] < means[1] - 4 * errors[1]
    assert means[1] < marginal


def test_k_max_with_all_positions_is_exact_and_with_one_is_the_most_probable() -> None:
    small = problem()

    def value(k_max: int | None) -> torch.Tensor:
        mixture = Marginal().mixture(small.memory, small.prior, source_mask=small.mask, k_max=k_max)
        return mixture.log_probability(small.log_f)[:, 0]

    exact = -small.run(Marginal())[0]
    for k_max in (None, 3, 4, 7):  # three positions are not masked
        assert torch.allclose(value(k_max), exact)
    top = small.log_p().topk(2, -1)
    assert torch.allclose(value(1), small.every_log_f().gather(1, top.indices[:, :1])[:, 0])
    two = top.values.log_softmax(-1) + small.every_log_f().gather(1, top.indices)
    assert torch.allclose(value(2), two.logsumexp(-1))


def test_the_gradient_is_the_posteriors() -> None:
    """d log marginal / d prior scores = true posterior - prior."""
    small = problem()
    gradient = small.gradients(-small.run(Marginal(chunk=1))[0])["prior"][:, 0, small.mask[0]]
    posterior = (small.log_p() + small.every_log_f()).softmax(-1)
    assert torch.allclose(gradient, posterior - small.log_p().exp())


def test_scores_far_apart_are_finite() -> None:
    memory = torch.randn(1, 3, 2)
    scores = torch.tensor([[[-1e4, 0.0, 1e4]]], requires_grad=True)
    with ba.record():
        loss = Marginal()(lambda contexts: -1e3 * contexts.square().sum(-1), memory, scores)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
