"""Relaxed alignments: the Dirichlet's KL, pathwise gradients, the warm start, prediction by draws from the prior."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence

from bayesattn.alignment import Relaxed
from bayesattn.alignment.relaxed import dirichlet_kl
from helpers.alignment_problems import DRAWS, MASK, problem


def test_the_kl_is_that_of_torch_and_leaves_masked_positions_out() -> None:
    log_q, log_p = torch.randn(2, 3, 5).double(), torch.randn(2, 3, 5).double()
    mask = torch.tensor([[True, True, True, False, False], [True] * 5])
    found = dirichlet_kl(log_q, log_p, mask)
    for example, kept in enumerate(mask):
        q, p = (Dirichlet(each[example][:, kept].exp()) for each in (log_q, log_p))
        assert torch.allclose(found[example], kl_divergence(q, p))
    empty = dirichlet_kl(log_q, log_p, torch.tensor([[False] * 5, [True] * 5]))
    assert (empty[0] == 0).all()


@pytest.mark.parametrize("warm_start", [False, True])
def test_the_gradient_is_unbiased(warm_start: bool) -> None:
    """f(z) = z_0² has the closed expectation a_0 (a_0 + 1) / (a (a + 1)), a = Σ a_i."""
    scores = torch.tensor([0.3, -0.5, 0.9, 0.2], dtype=torch.float64)
    exact_scores = scores.clone().requires_grad_(True)
    a = exact_scores[MASK].exp()
    expected = a[0] * (a[0] + 1) / (a.sum() * (a.sum() + 1))
    (wanted,) = torch.autograd.grad(-expected, exact_scores)

    copies = scores.expand(DRAWS, 1, 4).clone().requires_grad_(True)
    other = torch.zeros_like(copies)
    prior, posterior = (copies, other) if warm_start else (other, copies)
    memory = torch.eye(4, dtype=torch.float64).expand(DRAWS, 4, 4)  # the context is z itself
    loss = Relaxed(warm_start)(
        lambda contexts: contexts[..., 0].square(), memory, prior, posterior, source_mask=MASK.expand(DRAWS, 4)
    )
    (gradient,) = torch.autograd.grad(loss.sum(), copies)
    each = gradient[:, 0]
    assert ((each.mean(0) - wanted).abs() <= 4 * each.std(0) / DRAWS**0.5 + 1e-9).all()
    value = loss.detach()
    assert (value.mean() + expected.detach()).abs() <= 4 * value.std() / DRAWS**0.5


def test_warm_start_has_no_kl_and_the_full_objective_has() -> None:
    small = problem()
    assert (small.run(Relaxed(warm_start=True))[1] == 0).all()
    q, p = (Dirichlet(each[:, 0, MASK].exp()) for each in (small.posterior, small.prior))
    assert torch.allclose(small.run(Relaxed())[1], kl_divergence(q, p))


def test_eval_mode_takes_the_mean() -> None:
    small = problem()
    average = torch.einsum("bs,bsf->bf", small.log_q().exp(), small.memory[:, MASK])
    assert torch.allclose(small.run(Relaxed().eval())[0], -small.log_f(average[None, :, None])[0, :, 0])


def test_it_predicts_with_the_average_over_draws_from_the_prior() -> None:
    """E_p z_0² is known; K-max keeps the largest alone."""
    small = problem()
    memory = torch.eye(4, dtype=torch.float64).unsqueeze(0)
    a = small.prior[0, 0, MASK].detach().exp()
    expected = a[0] * (a[0] + 1) / (a.sum() * (a.sum() + 1))

    def predict(k_max: int | None) -> Tensor:
        mixture = Relaxed(test_samples=20_000).mixture(
            memory, small.prior.detach(), source_mask=small.mask, k_max=k_max
        )
        return mixture.log_probability(lambda contexts: contexts[..., 0].square().log()).exp()

    error = 0.5 / 20_000**0.5  # z_0² lies in [0, 1]: its deviation is at most 0.5
    assert (predict(None) - expected).abs() <= 4 * error
    assert torch.allclose(predict(1), (a.argmax() == 0).double())
    torch.manual_seed(4)
    every = predict(None)
    torch.manual_seed(4)
    assert torch.equal(predict(4), every)


def test_extreme_scores_are_clamped_and_finite() -> None:
    memory = torch.randn(1, 3, 2)
    scores = torch.tensor([[[-1e4, 0.0, 1e4]]], requires_grad=True)
    loss = Relaxed()(lambda contexts: -contexts.square().sum(-1), memory, scores, -scores)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
