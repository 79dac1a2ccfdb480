"""From scores to weights: the step that dense attention and attention on graphs share."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.numerics.counter_noise import Noise
from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.rows import Rows
from bayesattn.scopes import modes, recording, watching


def check_posterior(posterior: Posterior) -> None:
    """Raise unless `posterior` can be drawn from."""
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"posterior must be a Posterior such as ba.Weibull(k=10.0), got {posterior!r} of type {type(posterior).__name__}."
        )
    if posterior.needs_binding:
        raise ValueError(
            f"{type(posterior).__name__} has parameters of a layer's size that have not been made: use "
            "posterior.bind(num_heads=..., head_dim=...), or give it to ba.convert or a module of ba.nn, which do so."
        )


def draw_weights(
    scores: Tensor,
    keys: Tensor,
    rows: Rows,
    posterior: Posterior,
    noise: Noise = None,
) -> Tensor:
    """The weights of each row, drawn or the point estimate, of a posterior that was checked; the KL goes to the open `record()`.

    `scores` are pairs of `rows`, in float32 or better, with heads in dimension 1. `noise` is what `posterior.log_sample`
    draws from, a `CounterNoise` only if the posterior takes one.
    """
    with torch.autocast(scores.device.type, enabled=False):
        watched, drawn = modes.is_watched(), modes.draws_now(posterior)
        given = {"keys": keys} if posterior.samples_from_keys else {}
        log_weights = posterior.log_sample(scores, rows, noise, **given) if drawn else posterior.log_mean(scores)
        weights = rows.softmax(log_weights)
        if watched:
            prior = rows.softmax(posterior.log_prior(scores, keys, rows).expand_as(scores))
            watching.show_weights(posterior, weights, prior)
        if recording.kl_is_wanted():
            one = scores.new_ones(())
            recording.add_local(
                posterior.kl(scores, keys, rows),
                elements=rows.total_of_pairs(one),
                rows=rows.total_of_rows(one),
                tokens=rows.total_of_rows(one / scores.shape[1]),
                source=posterior,
                are_attention_weights=True,
            )
    return weights
