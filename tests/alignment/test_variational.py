"""Variational attention: the ELBO, tight at the true posterior, and draws whose gradient is unbiased."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bayesattn.alignment import Marginal, Variational
from helpers.alignment_problems import MASK, Problem, assert_unbiased, problem


def exact(small: Problem) -> Tensor:
    log_q = small.log_q()
    return -(log_q.exp() * (small.every_log_f() + small.log_p() - log_q)).sum(-1)


def test_enumerated_it_is_the_elbo() -> None:
    small = problem()
    loss, kl = small.run(Variational())
    assert torch.allclose(loss + kl, exact(small))
    assert torch.allclose(kl, (small.log_q().exp() * (small.log_q() - small.log_p())).sum(-1))


def test_it_equals_the_marginal_at_the_true_posterior() -> None:
    for seed in range(10):
        small = problem(seed=seed)
        scores = torch.zeros_like(small.posterior)
        scores[:, 0, MASK] = (small.log_p() + small.every_log_f()).detach()
        small.posterior = scores.requires_grad_(True)
        loss, kl = small.run(Variational())
        assert torch.allclose(loss + kl, small.run(Marginal())[0])
        assert torch.allclose(small.gradients(loss + kl)["posterior"], torch.zeros(()).double(), atol=1e-12)


@pytest.mark.parametrize(("baseline", "samples"), [("soft", 1), ("none", 1), ("soft", 3)])
def test_the_sampled_gradient_is_unbiased(baseline: str, samples: int) -> None:
    gradients = assert_unbiased(Variational(samples=samples, baseline=baseline), exact)
    assert gradients["posterior"].std(0)[0, 0] > 0.01  # the draws do vary


def test_drawn_alignments_give_the_prior_the_gradient_of_the_kl_alone() -> None:
    small = problem(50)
    loss, kl = small.run(Variational(samples=1))
    assert (small.gradients(loss)["prior"] == 0).all()
    loss, kl = small.run(Variational(samples=1))
    gradient = small.gradients(kl)["prior"][:, 0, MASK]
    assert torch.allclose(gradient, small.log_p().exp() - small.log_q().exp())
