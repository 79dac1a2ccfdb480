"""Gumbel-softmax draws: pathwise gradients of their own objective, the categorical KL, the ELBO in eval mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bayesattn.alignment import Gumbel, Variational
from helpers.alignment_problems import DRAWS, problem


def test_the_gradient_is_unbiased() -> None:
    """Two positions: z = sigmoid((difference of scores + logistic noise) / tau), whose expectation is an integral."""
    temperature = 0.5

    def log_f(z: torch.Tensor) -> torch.Tensor:
        return -2 * (z - 0.3).square() + torch.sin(3 * z)

    quantiles = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    difference = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    expected = log_f(torch.sigmoid((difference + quantiles.logit()) / temperature)).mean()
    (wanted,) = torch.autograd.grad(-expected, difference)

    scores = torch.tensor([[0.4, 0.0]], dtype=torch.float64).expand(DRAWS, 1, 2).clone().requires_grad_(True)
    memory = torch.tensor([[1.0], [0.0]], dtype=torch.float64).expand(DRAWS, 2, 1)  # the context is the first weight
    loss = Gumbel(temperature)(lambda contexts: log_f(contexts.squeeze(-1)), memory, scores.detach(), scores)
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    each = gradient[:, 0, 0]
    assert (each.mean() - wanted).abs() <= 4 * each.std() / DRAWS**0.5
    assert torch.allclose(gradient.sum(-1), torch.zeros(()).double(), atol=1e-9)
    value = loss[:, 0].detach()
    assert (value.mean() + expected.detach()).abs() <= 4 * value.std() / DRAWS**0.5


def test_a_low_temperature_draws_single_positions_as_often_as_q_says() -> None:
    many = problem(20_000, dtype=torch.float32)
    loss, kl = many.run(Gumbel(1e-4))
    nearest = (loss.unsqueeze(1) + many.every_log_f()).abs().min(1)
    assert (nearest.values < 1e-3).float().mean() > 0.99
    frequencies = F.one_hot(nearest.indices, 3).float().mean(0)
    q = many.log_q()[0].exp()  # reversed noise would draw other frequencies: three positions tell, two do not
    assert ((frequencies - q).abs() <= 4 * (q * (1 - q) / 20_000).sqrt()).all()
    assert torch.allclose(kl, many.run(Variational())[1])
    assert all(gradient.isfinite().all() for gradient in many.gradients(loss + kl).values())


def test_eval_mode_is_the_elbo() -> None:
    small = problem()
    assert torch.equal(small.run(Gumbel().eval())[0], small.run(Variational())[0])
