"""The multi-sample bound: gradients against the enumeration of all tuples of draws."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from bayesattn.alignment import Importance, Marginal
from bayesattn.alignment.importance import _leave_one_out
from helpers.alignment_problems import Problem, assert_unbiased, problem


def every_tuple(small: Problem, samples: int) -> tuple[Tensor, Tensor]:
    """log q of every tuple of draws, and its log importance weights: [tuples, samples]."""
    tuples = torch.tensor(list(itertools.product(range(3), repeat=samples)))
    log_q = small.log_q()[0][tuples]
    return log_q, (small.log_p() + small.every_log_f())[0][tuples] - log_q


@pytest.mark.parametrize("samples", [2, 3])
def test_vimco_is_unbiased(samples: int) -> None:
    def exact(small: Problem) -> Tensor:
        log_q, log_w = every_tuple(small, samples)
        return -(log_q.sum(1).exp() * (log_w.logsumexp(1) - math.log(samples))).sum()

    gradients = assert_unbiased(Importance(samples), exact)
    assert gradients["posterior"].std(0)[0, 0] > 0.001


def test_wake_trains_prior_and_likelihood_on_the_bound_and_q_with_the_normalised_weights() -> None:
    def exact(small: Problem) -> Tensor:
        """Its gradients are those to be expected: the tuples' probability is a constant, q learns by its own term."""
        log_q, log_w = every_tuple(small, 2)
        probability = log_q.sum(1).exp().detach()
        bound = (log_w + log_q - log_q.detach()).logsumexp(1)
        wake = (log_w.detach().softmax(1) * log_q).sum(1)
        return -(probability * (bound + wake)).sum()

    assert_unbiased(Importance(2, gradient="wake"), exact)


def test_eval_mode_is_the_marginal_and_one_sample_is_refused() -> None:
    small = problem()
    loss, kl = small.run(Importance().eval())
    assert torch.equal(loss, small.run(Marginal())[0])
    assert (kl == 0).all()
    with pytest.raises(ValueError, match=r"at least 2, got 1\. With one sample use Variational"):
        Importance(1)


def test_a_draws_signal_is_what_it_added_to_the_bound() -> None:
    """L_K minus the bound with its weight replaced by the geometric mean of the others."""
    log_w = torch.randn(4, 1, 1).double()
    bound = log_w.exp().mean().log()
    for k, signal in enumerate(_leave_one_out(log_w).flatten()):
        others = torch.cat([log_w[:k], log_w[k + 1 :]]).flatten()
        without = (others.exp().sum() + others.mean().exp()) / 4
        assert torch.isclose(signal, bound - without.log())
