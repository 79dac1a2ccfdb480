"""Attention of a decoder that makes one position after the other: the weights of a step, and the KL of all steps as one term."""

from __future__ import annotations

from torch import Tensor

from bayesattn.alignment import Objective, keep_largest, log_weights
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors import Posterior, Softmax
from bayesattn.posteriors.priors import Prior
from bayesattn.posteriors.rows import DenseRows
from bayesattn.scopes import modes, recording
from bayesattn.support.annotations import Bool, Float


def step_weights(
    posterior: Posterior,
    scores: Float[Tensor, "batch source"],
    mask: Bool[Tensor, "batch source"],
    k_max: int | None = None,
) -> Float[Tensor, "batch source"]:
    """The weights of one step, drawn or the point estimate; with `k_max` those of the K largest alone. Records nothing."""
    rows = DenseRows((scores.shape[0], 1, 1, scores.shape[1]), mask[:, None, None, :])
    pairs = rows.fill_blocked(to_compute(scores)[:, None, None, :], 0.0)
    drawn = modes.draws_now(posterior)
    pairs = posterior.log_sample(pairs, rows, modes.current_generator()) if drawn else posterior.log_mean(pairs)
    if k_max is not None:
        pairs = keep_largest(log_weights(pairs[:, 0], mask), k_max).unsqueeze(1)
    return rows.softmax(pairs)[:, 0, 0]


def record_steps(
    posterior: Posterior,
    scores: Float[Tensor, "batch target source"],
    keys: Float[Tensor, "batch source attention"],
    mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
) -> None:
    """Record the KL of all steps as one term of the posterior."""
    if not recording.kl_is_wanted():
        return
    batch, target, source = scores.shape
    rows = DenseRows((batch, 1, target, source), mask[:, None, None, :], target_mask)
    filled = rows.fill_blocked(to_compute(scores).unsqueeze(1), 0.0)
    one = filled.new_ones(())
    tokens = rows.total_of_rows(one)
    recording.add_local(
        posterior.kl(filled, keys.unsqueeze(1), rows),
        elements=rows.total_of_pairs(one),
        rows=tokens,
        tokens=tokens,
        source=posterior,
        are_attention_weights=True,
    )


def contextual_shares(
    posterior: Posterior, keys: Float[Tensor, "batch source attention"], mask: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch source"] | None:
    """What a contextual prior, which sees the keys alone, gives each of them; None without such a prior."""
    prior = getattr(posterior, "prior", None)
    logits = prior.share_logits(keys.unsqueeze(1)) if isinstance(prior, Prior) else None
    return None if logits is None else log_weights(logits[:, 0].unsqueeze(1), mask).exp().squeeze(1)


def stepwise_posterior(attention: Objective | Posterior) -> Posterior:
    """The posterior of the weights that a decoder computes with: softmax's for an objective of latent alignment."""
    if isinstance(attention, Objective):
        return Softmax()
    if not isinstance(attention, Posterior):
        raise TypeError(
            f"attention must be an objective such as ba.alignment.Marginal() or a posterior such as ba.Weibull(k=10.0), got {attention!r}."
        )
    if getattr(attention, "max_len", None) is not None:
        raise ValueError(
            f"attention={attention!r} is tied to query positions by max_len, but the decoder attends one position at a time: "
            "use max_len=None."
        )
    return attention
