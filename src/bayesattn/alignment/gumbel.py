"""Variational attention with Gumbel-softmax draws."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from bayesattn.alignment import categorical, contexts
from bayesattn.alignment.base import Alignment, Objective
from bayesattn.alignment.mixture import CHUNK
from bayesattn.numerics.counter_noise import log_exponential
from bayesattn.scopes.modes import current_generator
from bayesattn.support import checks
from bayesattn.support.configurable import register


@register
class Gumbel(Objective):
    """log f(z · memory) - KL(q ‖ p) with z = softmax((log q + G) / tau), G standard Gumbel; pathwise gradients.

    A surrogate of `Variational`: the draws lie inside the simplex, the KL is the categorical one. In eval mode it is the
    ELBO itself, enumerated.

    Args:
        temperature: tau (the released code: 0.1). Small: nearer to categorical draws, gradients of higher variance.
        chunk: how many (choice, example, target token) the likelihood sees at once when enumerating.
    """

    needs_posterior: ClassVar[bool] = True

    def __init__(self, temperature: float = 0.1, chunk: int = CHUNK):
        super().__init__()
        self.temperature = checks.positive("temperature", temperature)
        self.chunk = checks.whole("chunk", chunk)

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        log_q = alignment.log_posterior
        kl = categorical.kl(log_q, alignment.log_prior)
        if not self.samples_now:
            return -alignment.every(log_q, self.chunk).expectation(alignment.log_likelihood), kl
        noisy = log_q - log_exponential(log_q, current_generator())
        weights = (noisy / self.temperature).clamp_min(-1e30).softmax(-1)  # masked / tau must not be -inf
        context = contexts.average(alignment.memory, weights.unsqueeze(0))
        return -alignment.log_likelihood(context).squeeze(0), kl
