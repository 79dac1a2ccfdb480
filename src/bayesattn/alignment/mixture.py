"""Many contexts with a weight each, pushed through the likelihood in chunks that are computed again for the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bayesattn.support import checks
from bayesattn.support.annotations import Float

LogLikelihood = Callable[[Tensor], Tensor]
"""Contexts [choices, batch, target or 1, features] → log p(y | context) [choices, batch, target], or [..., words] for all words."""

CHUNK = 2048
"""How many (choice, example, target token) the likelihood sees at once, unless told otherwise."""


class ContextMixture:
    """log p(y) = log Σ_c w_c f(y | context_c), for every target token.

    The likelihood sees at most `chunk` (choice, example, target token) at once, but at least one choice, as soft
    attention needs it too. If that takes more than one call, each is computed again in the backward pass: the memory
    is that of one chunk, however many choices there are, and no tensor of target × source × vocabulary is ever made.

    Args:
        contexts: [choices, batch, target, features]; target may be 1 if a choice has one context for all target tokens.
        log_weights: [choices, batch, target], summing to one over the choices.
        chunk: see above.
    """

    def __init__(
        self,
        contexts: Float[Tensor, "choices batch #target features"],
        log_weights: Float[Tensor, "choices batch target"],
        chunk: int = CHUNK,
    ):
        self.contexts = contexts
        self.log_weights = log_weights
        choices, batch, target = log_weights.shape
        self._choices_at_once = min(choices, max(1, checks.whole("chunk", chunk) // max(1, batch * target)))

    def log_probability(self, likelihood: LogLikelihood) -> Float[Tensor, "batch target ..."]:
        """log Σ_c w_c f(y | context_c)."""

        def part(contexts: Tensor, log_weights: Tensor) -> Tensor:
            values = likelihood(contexts)
            return (values + _like(log_weights, values)).logsumexp(0)

        return self._accumulate(part, torch.logaddexp)

    def expectation(self, likelihood: LogLikelihood) -> Float[Tensor, "batch target ..."]:
        """Σ_c w_c log f(y | context_c), a lower bound of `log_probability` (Jensen)."""

        def part(contexts: Tensor, log_weights: Tensor) -> Tensor:
            values = likelihood(contexts)
            return (values * _like(log_weights, values).exp()).sum(0)

        return self._accumulate(part, torch.add)

    def _accumulate(
        self, part: Callable[[Tensor, Tensor], Tensor], combine: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        pieces = list(
            zip(self.contexts.split(self._choices_at_once), self.log_weights.split(self._choices_at_once), strict=True)
        )
        again = len(pieces) > 1 and torch.is_grad_enabled()
        total = None
        for contexts, log_weights in pieces:
            given = (contexts, log_weights)
            value = checkpoint(part, *given, use_reentrant=False) if again else part(*given)
            total = value if total is None else combine(total, value)
        assert total is not None  # there is at least one choice
        return total


def _like(log_weights: Tensor, values: Tensor) -> Tensor:
    """The weights shaped so that they broadcast against values with a further dimension of words."""
    return log_weights.view(log_weights.shape + (1,) * (values.dim() - log_weights.dim()))
