"""From scores to weights: the step that dense attention and attention on graphs share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.rows import Rows
from bayesattn.scopes import recording, watching


def draw_weights(
    scores: Tensor,
    keys: Tensor,
    rows: Rows,
    posterior: Posterior,
    noise: Any = None,
) -> Tensor:
    """The weights of each row, drawn or the point estimate; the KL goes to the open `record()`.

    `scores` are pairs of `rows`, in float32 or better, with heads in dimension 1. `noise` is what `posterior.log_sample`
    draws from: a torch.Generator, None, or a CounterNoise if the posterior takes one.
    """
    posterior.check_bound()
    with torch.autocast(scores.device.type, enabled=False):
        log_weights = posterior.log_sample(scores, rows, noise) if posterior.samples else posterior.log_mean(scores)
        weights = rows.softmax(log_weights)
        if watching.is_watched():
            prior = rows.softmax(posterior.log_prior(scores, keys, rows).expand_as(scores))
            watching.show(posterior, weights, prior)
        if recording.kl_is_wanted():
            one = scores.new_ones(())
            recording.add_local(
                posterior.kl(scores, keys, rows),
                elements=rows.total_of_pairs(one),
                rows=rows.total_of_rows(one),
                tokens=rows.total_of_rows(one / scores.shape[1]),
                source=posterior,
            )
    return weights
