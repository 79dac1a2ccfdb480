"""Soft attention, and soft attention with the K largest weights."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Dirichlet

from bayesattn.alignment import Marginal, Soft
from helpers.alignment_problems import MASK, problem


def test_it_is_the_likelihood_of_the_average() -> None:
    small = problem()
    loss, kl = small.run(Soft())
    average = torch.einsum("bs,bsf->bf", small.log_p().exp(), small.memory[:, MASK])
    assert torch.allclose(loss, -small.log_f(average[None, :, None])[0, :, 0])
    assert (kl == 0).all()


def test_k_max_averages_the_k_largest_and_is_exact_with_all() -> None:
    small = problem()

    def value(k_max: int | None) -> torch.Tensor:
        mixture = Soft().mixture(small.memory, small.prior, source_mask=small.mask, k_max=k_max)
        return mixture.log_probability(small.log_f)[:, 0]

    top = small.log_p().argmax(-1)
    assert torch.allclose(value(1), small.every_log_f().gather(1, top[:, None])[:, 0])
    assert torch.allclose(value(4), value(None))
    assert torch.allclose(value(None), -small.run(Soft())[0])


@pytest.mark.parametrize("seed", range(8))
def test_it_is_within_the_curvature_of_the_latent_mixture(seed: int) -> None:
    """Proposition 1 of Deng et al.: |p(y) - p_soft(y)| ≤ c, c the largest spectral norm of the Hessian of f over the simplex.

    Here c is the largest over many points, which is no larger than over all; and the proof's own bound, c/2 E‖z - E z‖², is tighter.
    """
    small = problem(seed=seed)
    memory, theta, p = small.memory[0, MASK], small.theta[0].detach(), small.log_p()[0].exp().detach()

    def f(z: torch.Tensor) -> torch.Tensor:
        return ((z @ memory).tanh() @ theta).softmax(-1)[0]

    points = torch.cat([torch.eye(3).double(), p[None], Dirichlet(torch.ones(3).double()).sample((400,))])
    c = torch.linalg.matrix_norm(torch.func.vmap(torch.func.hessian(f))(points), 2).max()
    latent, soft = (small.run(objective)[0].neg().exp().detach() for objective in (Marginal(), Soft()))
    spread = (p * (torch.eye(3).double() - p).square().sum(-1)).sum()
    gap = (latent - soft).abs()
    assert 0 < gap <= c / 2 * spread <= c


def test_where_the_alignment_is_certain_it_is_the_latent_mixture() -> None:
    small = problem()
    with torch.no_grad():
        small.prior[..., 1] += 1e4
    assert torch.allclose(small.run(Soft())[0], small.run(Marginal())[0])
