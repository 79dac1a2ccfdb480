"""Soft attention: no latent variable."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.alignment import categorical, contexts
from bayesattn.alignment.base import Alignment, Objective, without_padding
from bayesattn.alignment.mixture import ContextMixture
from bayesattn.support.configurable import register


@register
class Soft(Objective):
    """log f(E_p z): ordinary attention, deterministic, with no KL. It also predicts so, from one context."""

    def __init__(self) -> None:
        super().__init__()

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        loss = -alignment.soft_log_likelihood()
        return loss, torch.zeros_like(loss)

    def mixture(
        self, memory: Tensor, prior_scores: Tensor, *, source_mask: Tensor | None = None, k_max: int | None = None
    ) -> ContextMixture:
        log_prior = categorical.log_weights(prior_scores, source_mask)
        if k_max is not None:
            log_prior = categorical.keep_largest(log_prior, k_max)
        context = contexts.average(without_padding(memory, source_mask), log_prior.exp().unsqueeze(0))
        return ContextMixture(context, log_prior.new_zeros(context.shape[:-1]))
