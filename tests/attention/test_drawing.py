"""The step that dense attention and attention on graphs share."""

from __future__ import annotations

import torch

import bayesattn as ba
from bayesattn.attention.drawing import draw_weights
from bayesattn.posteriors.rows import DenseRows


def test_it_is_what_attend_scores_does() -> None:
    scores, keys = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5, 6)
    posterior = ba.Dirichlet().bind(num_heads=3, head_dim=6)
    noise = ba.numerics.counter_noise.CounterNoise(
        ba.numerics.counter_noise.draw_seed(torch.Generator().manual_seed(1))
    )
    with ba.record() as ours:
        weights = draw_weights(scores, keys, DenseRows((2, 3, 4, 5)), posterior, noise)
    with ba.record() as theirs:
        _, expected = ba.attend_scores(scores, keys, keys, posterior, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(weights, expected)
    for name in ("kl", "elements", "rows", "tokens"):
        torch.testing.assert_close(getattr(ours.local_terms[0], name), getattr(theirs.local_terms[0], name))


def test_eval_mode_gives_the_point_estimate_and_no_recorder_no_term() -> None:
    scores = torch.randn(2, 3, 4, 5)
    weights = draw_weights(scores, scores, DenseRows((2, 3, 4, 5)), ba.Weibull(k=1.0).eval())
    torch.testing.assert_close(weights, scores.softmax(-1))
