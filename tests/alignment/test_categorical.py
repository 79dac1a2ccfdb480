"""Categorical alignments: masked weights, K-max, draws, KL and entropy."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from bayesattn.alignment import categorical


def test_masked_positions_have_no_weight_and_no_gradient() -> None:
    scores = torch.randn(2, 3, 5, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    weights = categorical.log_weights(scores, mask).exp()
    assert (weights[1, :, 2:] == 0).all()
    assert torch.allclose(weights[1, :, :2], scores[1, :, :2].softmax(-1))
    weights.square().sum().backward()
    assert scores.grad is not None
    assert (scores.grad[1, :, 2:] == 0).all()
    assert scores.grad.isfinite().all()


def test_k_max_keeps_the_largest_and_renormalises() -> None:
    log_p = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    assert torch.allclose(categorical.keep_largest(log_p, 2).exp(), torch.tensor([[0, 4 / 7, 0, 3 / 7]]))
    for k in (4, 9):
        assert torch.allclose(categorical.keep_largest(log_p, k), log_p, atol=1e-6)
    with pytest.raises(ValueError, match="k_max must be a whole number of at least 1, got 0"):
        categorical.keep_largest(log_p, 0)


def test_draws_follow_the_weights() -> None:
    log_p = torch.tensor([0.1, 0.6, 0.0, 0.3]).log().clamp_min(torch.finfo(torch.float32).min)
    drawn = categorical.draw(log_p.expand(2, 3, 4), 200_000)
    assert drawn.shape == (200_000, 2, 3)
    frequencies = torch.nn.functional.one_hot(drawn[:, 1, 2], 4).float().mean(0)
    p = log_p.exp()
    assert ((frequencies - p).abs() <= 4 * (p * (1 - p) / 200_000).sqrt()).all()
    assert torch.equal(categorical.at(log_p.expand(2, 3, 4), drawn), log_p[drawn])


def test_a_generator_decides_the_draws() -> None:
    log_p = torch.randn(2, 3, 4).log_softmax(-1)
    first, second = (categorical.draw(log_p, 50, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


def test_kl_and_entropy_are_those_of_torch_and_the_priors_gradient_is_p_minus_q() -> None:
    q_scores, p_scores = torch.randn(2, 3, 5), torch.randn(2, 3, 5, requires_grad=True)
    log_q, log_p = q_scores.log_softmax(-1), p_scores.log_softmax(-1)
    kl = categorical.kl(log_q, log_p)
    assert torch.allclose(kl, kl_divergence(Categorical(logits=log_q), Categorical(logits=log_p)), atol=1e-6)
    assert torch.allclose(categorical.entropy_of_log_weights(log_q), Categorical(logits=log_q).entropy(), atol=1e-6)
    (gradient,) = torch.autograd.grad(kl.sum(), p_scores)
    assert torch.allclose(gradient, log_p.exp() - log_q.exp(), atol=1e-6)
