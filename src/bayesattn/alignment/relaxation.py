"""What relaxed alignments share: weights inside the simplex instead of one position, pathwise gradients, a warm start."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from bayesattn.alignment import categorical, contexts
from bayesattn.alignment.base import Alignment, Objective, without_padding
from bayesattn.alignment.mixture import ContextMixture
from bayesattn.numerics.precision import to_compute
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float


class Relaxation(Objective):
    """E_{z ~ q} log f(z · memory) - KL(q ‖ p), where q and p have densities on the simplex. Subclasses say which.

    From a random start Dirichlet weights collapse to flat ones. The paper starts with `warm_start=True`, the Jensen bound
    E_{z ~ p} log f(z · memory) without posterior and KL, and goes on with the full objective:

        model.objective = ba.alignment.Relaxed(warm_start=True)     # some epochs
        model.objective = ba.alignment.Relaxed()                    # the rest

    In eval mode z is taken at its centre. It predicts with the average over draws from the prior.
    """

    needs_posterior: ClassVar[bool] = True

    def __init__(self, warm_start: bool = False, test_samples: int = 10):
        super().__init__()
        self.warm_start = warm_start
        self.test_samples = checks.whole("test_samples", test_samples)

    @abstractmethod
    def location(self, scores: Float[Tensor, "batch target source"]) -> Float[Tensor, "batch target source"]:
        """What of the distribution the scores decide; its softmax is the centre."""

    @abstractmethod
    def log_draw(
        self, location: Float[Tensor, "*samples batch target source"], of_prior: bool
    ) -> Float[Tensor, "*samples batch target source"]:
        """Logarithms of weights that are not normalised yet, drawn with pathwise gradients."""

    @abstractmethod
    def divergence(
        self,
        q: Float[Tensor, "batch target source"],
        p: Float[Tensor, "batch target source"],
        source_mask: Bool[Tensor, "batch source"] | None,
    ) -> Float[Tensor, "batch target"]:
        """KL(q ‖ p) of two locations, over the positions that are not masked."""

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        prior = self.location(alignment.prior_scores)
        assert alignment.posterior_scores is not None  # Objective.forward has said so
        if self.warm_start:
            # a gradient of zero and not none: data-parallel training waits for every parameter's
            chosen, kl = prior, 0.0 * to_compute(alignment.posterior_scores).sum(-1)
        else:
            chosen = self.location(alignment.posterior_scores)
            kl = self.divergence(chosen, prior, alignment.source_mask)
        drawn = self.log_draw(chosen, of_prior=self.warm_start) if self.samples_now else chosen
        weights = categorical.log_weights(drawn, alignment.source_mask).exp()
        context = contexts.average(alignment.memory, weights.unsqueeze(0))
        return -alignment.log_likelihood(context).squeeze(0), kl

    def mixture(
        self, memory: Tensor, prior_scores: Tensor, *, source_mask: Tensor | None = None, k_max: int | None = None
    ) -> ContextMixture:
        prior = self.location(prior_scores)
        drawn = self.log_draw(prior.expand(self.test_samples, *prior.shape), of_prior=True)
        if k_max is not None:
            kept = categorical.keep_largest(categorical.log_weights(prior_scores, source_mask), k_max)
            drawn = drawn.masked_fill(kept == torch.finfo(kept.dtype).min, torch.finfo(drawn.dtype).min)
        weights = categorical.log_weights(drawn, source_mask).exp()
        sampled = contexts.average(without_padding(memory, source_mask), weights)
        return ContextMixture(sampled, prior.new_full(sampled.shape[:-1], -math.log(self.test_samples)))
