"""What the tests of the posteriors share: many copies of one small row, with one key masked."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesattn.posteriors.rows import DenseRows

DRAWS = 1_000_000
ALLOWED = torch.tensor([True, True, False, True])


def many(scores: Tensor, draws: int) -> tuple[Tensor, DenseRows]:
    """[draws, 1, 1, 4] copies of a row of four scores, the third masked."""
    copies = scores.masked_fill(~ALLOWED, 0.0).expand(draws, 1, 1, 4)
    return copies, DenseRows((draws, 1, 1, 4), ALLOWED[None, None, None])


def assert_is_mean(draws: Tensor, exact: Tensor | float, errors: float = 4.0) -> None:
    """The mean over dimension 0 is within that many standard errors of the exact value."""
    error = draws.std(0) / math.sqrt(draws.shape[0])
    distance = (draws.mean(0) - exact).abs()
    assert (distance <= errors * error + 1e-9).all(), (draws.mean(0), exact, error)


def assert_same_mean(first: Tensor, second: Tensor, errors: float = 4.5) -> None:
    """Two estimators agree within that many standard errors of their difference."""
    error = (first.var(0) / first.shape[0] + second.var(0) / second.shape[0]).sqrt()
    distance = (first.mean(0) - second.mean(0)).abs()
    assert (distance <= errors * error + 1e-9).all(), (first.mean(0), second.mean(0), error)


def pathwise_gradient(log_weights: Tensor, rows: DenseRows, wrt: Tensor) -> Tensor:
    """Each draw's gradient of f(W) = W_0² + W_0 W_1 with respect to each draw's own `wrt`."""
    (gradient,) = torch.autograd.grad(objective(rows.softmax(log_weights)).sum(), wrt)
    return gradient


def objective(weights: Tensor) -> Tensor:
    """A test function of the weights that is not linear."""
    return weights[..., 0].square() + weights[..., 0] * weights[..., 1]
