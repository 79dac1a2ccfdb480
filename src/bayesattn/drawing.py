"""From scores to weights: the step that dense attention and attention on graphs share."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn import latents
from bayesattn.posteriors.base import Posterior
from bayesattn.rows import Rows


def draw_weights(
    scores: Tensor, keys: Tensor, rows: Rows, posterior: Posterior, generator: torch.Generator | None = None
) -> Tensor:
    """The weights of each row, drawn or the point estimate; the KL goes to the open `record()`.

    `scores` are pairs of `rows`, in float32 or better, with heads in dimension 1.
    """
    posterior.check_bound()
    with torch.autocast(scores.device.type, enabled=False):
        if posterior.samples:
            log_weights = posterior.log_sample(scores, rows, generator or latents.current_generator())
        else:
            log_weights = posterior.log_mean(scores)
        weights = rows.softmax(log_weights)
        if latents.kl_is_wanted():
            one = scores.new_ones(())
            latents.add_local(
                posterior.kl(scores, keys, rows),
                elements=rows.total_of_pairs(one),
                rows=rows.total_of_rows(one),
                tokens=rows.total_of_rows(one / scores.shape[1]),
                source=posterior,
            )
    return weights
