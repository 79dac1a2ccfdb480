"""Hard attention: the enumerated expectation, and draws whose gradient is unbiased."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bayesattn.alignment import Hard, Variational
from helpers.alignment_problems import Problem, assert_unbiased, problem


def exact(small: Problem) -> Tensor:
    return -(small.log_p().exp() * small.every_log_f()).sum(-1)


def test_enumerated_it_is_the_expectation_under_the_prior() -> None:
    small = problem()
    loss, kl = small.run(Hard())
    assert torch.allclose(loss, exact(small))
    assert (kl == 0).all()


def test_it_is_the_elbo_with_the_prior_as_posterior() -> None:
    small = problem()
    loss, kl = small.run(Hard())
    small.posterior = small.prior
    elbo_loss, elbo_kl = small.run(Variational())
    assert torch.allclose(loss + kl, elbo_loss + elbo_kl)
    assert torch.allclose(elbo_kl, torch.zeros_like(elbo_kl))


@pytest.mark.parametrize(("baseline", "samples"), [("soft", 1), ("none", 1), ("soft", 3)])
def test_the_sampled_gradient_is_unbiased(baseline: str, samples: int) -> None:
    gradients = assert_unbiased(Hard(samples=samples, baseline=baseline), exact)
    assert gradients["prior"].std(0)[0, 0] > 0.01  # the draws do vary
