"""What a posterior tells the kernels about itself: the form of its noise, and the sums that its KL needs.

A posterior whose log weights are `scores + scale · noise`, and whose KL is a function of a few sums over each row, can say so by
returning a `FusedForm` from `Posterior.fused_form`. It then runs on every backend. One that says nothing runs on `reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from bayesattn.support.annotations import Float

NoiseForm = Literal["none", "log_exponential", "normal", "gamma"]
Statistics = Literal["nothing", "sum", "shares", "squares", "squares_log", "squares_share", "gamma"]

NOISES: tuple[NoiseForm, ...] = ("none", "log_exponential", "normal", "gamma")
STATISTICS: tuple[Statistics, ...] = ("nothing", "sum", "shares", "squares", "squares_log", "squares_share", "gamma")


class RowSums(NamedTuple):
    """Sums over the keys of each row, each broadcastable to [batch, heads, query]; all are 0 in an empty row.

    `first` and `second` are, with phi the scores and share = exp(prior_logit - prior_total), for the form's `statistics`

        nothing         0                                0
        sum             Σ phi                            0
        shares          Σ share · phi                    Σ lgamma(concentration · share)
        squares         Σ phi                            Σ phi²
        squares_log     Σ (phi - prior_logit)            Σ (phi - prior_logit)²
        squares_share   Σ (phi - share)                  Σ (phi - share)²
        gamma           Σ KL(Gamma(alpha) ‖ Gamma(p))    Σ alpha

    and in the last one alpha = exp(scale + phi - total), at least 1e-20, and p the form's concentration.
    """

    size: Float[Tensor, "#batch #heads #query"]
    """The number of keys."""
    filled: Float[Tensor, "#batch #heads #query"]
    """1 for a row that has keys, else 0."""
    total: Float[Tensor, "batch heads query"]
    """log Σ exp phi, if `wants_total`."""
    first: Float[Tensor, "batch heads query"]
    second: Float[Tensor, "batch heads query"]
    exponentials: Float[Tensor, "batch heads query"]
    """Σ exp phi with the tangent beyond 60, if `wants_exponentials`."""
    prior_total: Float[Tensor, "#batch #heads #query"] | None
    """log Σ exp prior_logit over the keys of the row, where there are prior logits."""


@dataclass(frozen=True)
class FusedForm:
    """log S = scores + scale · noise, or log Gamma draws, and the KL of a row as a function of its sums.

    Args:
        kl: the KL of each row, [batch, heads, query] or broadcastable to it, from its sums. It must be 0 in an empty row.
        noise: "none", "log_exponential" (log E, E ~ Exponential(1)), "normal", or "gamma": S ~ Gamma(alpha, 1) with
            alpha = exp(scale) · softmax(scores).
        scale: of the noise, broadcastable to [batch, heads, query]: one number, one for each head, or one for each row.
        statistics: which sums the KL needs; see `RowSums`.
        wants_total, wants_exponentials: whether it needs those two.
        prior_logits: one logit for each key, whose softmax over the keys of a row are the shares.
        log_concentration: log of the factor of the shares in "shares", of the prior's concentration in "gamma".
    """

    kl: Callable[[RowSums], Tensor]
    noise: NoiseForm = "none"
    scale: float | Tensor = 1.0
    statistics: Statistics = "nothing"
    wants_total: bool = False
    wants_exponentials: bool = False
    prior_logits: Float[Tensor, "batch key_heads key"] | None = None
    log_concentration: float = 0.0
