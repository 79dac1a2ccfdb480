"""Categorical alignments in log space: weights, K-max, draws, KL and entropy, over the last dimension."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.numerics.counter_noise import log_exponential
from bayesattn.numerics.precision import to_compute
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Shaped


def log_weights(
    scores: Float[Tensor, "*samples batch target source"], source_mask: Bool[Tensor, "batch source"] | None = None
) -> Float[Tensor, "*samples batch target source"]:
    """log softmax of the scores, in float32 or better.

    Masked positions get the dtype's lowest value and not -inf, whose gradients are NaN; its exponential is 0. Where
    everything is masked the weights are uniform; `Alignment` has zeros for the memory there.
    """
    scores = to_compute(scores)
    if source_mask is not None:
        scores = scores.masked_fill(~source_mask.unsqueeze(1), torch.finfo(scores.dtype).min)
    return scores.log_softmax(-1)


def keep_largest(log_weights: Float[Tensor, "*rows source"], k: int) -> Float[Tensor, "*rows source"]:
    """K-max: the K largest weights, renormalised; all others 0 (in logarithms, the dtype's lowest value).

    >>> import torch
    >>> keep_largest(torch.tensor([0.5, 0.2, 0.3]).log(), 2).exp()
    tensor([0.6250, 0.0000, 0.3750])
    """
    checks.whole("k_max", k)
    values, indices = log_weights.topk(min(k, log_weights.shape[-1]), -1)
    lowest = torch.full_like(log_weights, torch.finfo(log_weights.dtype).min)
    return lowest.scatter(-1, indices, values.log_softmax(-1))


def draw(
    log_weights: Float[Tensor, "*rows source"], samples: int, generator: torch.Generator | None = None
) -> Shaped[Tensor, " samples *rows"]:
    """Indices drawn from the weights, as the winners of an exponential race: argmax of log w - log E."""
    rates = log_weights.detach().expand(samples, *log_weights.shape)
    return (rates - log_exponential(rates, generator)).argmax(-1)


def at(log_weights: Float[Tensor, "*rows source"], chosen: Shaped[Tensor, " samples *rows"]) -> Tensor:
    """The log weights of the chosen indices, [samples, *rows]."""
    every = log_weights.expand(chosen.shape[0], *log_weights.shape)
    return every.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


def kl(log_q: Float[Tensor, "*rows source"], log_p: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """KL(q ‖ p) = Σ q (log q - log p)."""
    return (log_q.exp() * (log_q - log_p)).sum(-1)


def entropy_of_log_weights(log_weights: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows"]:
    """-Σ w log w, in nats."""
    return -(log_weights.exp() * log_weights).sum(-1)
