"""E log f over a categorical alignment, enumerated or by draws with a score-function gradient: what hard and variational share."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from bayesattn.alignment import categorical, contexts
from bayesattn.alignment.base import Alignment, Objective
from bayesattn.alignment.mixture import CHUNK
from bayesattn.scopes.modes import current_generator
from bayesattn.support import checks
from bayesattn.support.annotations import Float

Baseline = Literal["soft", "others", "none"]
"""What is subtracted from the reward of a draw."""


class ExpectedLogLikelihood(Objective):
    """E_{z ~ r} log f(y | memory_z), r the prior or the posterior.

    Enumerated it is Σ_i r_i log f(y | memory_i). With draws z ~ r its gradient is that of

        log f(z) + sg[log f(z) - B] · log r(z),      B = log f(E_p z), soft attention under the prior,

    sg = no gradient: unbiased with any B that does not depend on z, and of low variance with this one. baseline="others": B of a draw is
    the mean of log f over the other draws of the same token, which needs no soft pass.
    """

    def __init__(
        self,
        samples: int | None = None,
        baseline: Baseline = "soft",
        train_baseline: bool = False,
        chunk: int = CHUNK,
    ):
        super().__init__()
        self.samples = None if samples is None else checks.whole("samples", samples, hint="None enumerates.")
        self.baseline = checks.one_of("baseline", baseline, ("soft", "others", "none"))
        if baseline == "others" and (samples is None or samples < 2):
            raise ValueError(
                f"baseline='others' needs samples=2 or more, got samples={samples!r}: a draw is compared with the others."
            )
        self.train_baseline = train_baseline
        if train_baseline and (samples is None or baseline != "soft"):
            raise ValueError(
                f"train_baseline=True needs samples=1 or more and baseline='soft', got samples={samples!r} and baseline={baseline!r}."
            )
        self.chunk = checks.whole("chunk", chunk)

    def expected(
        self, alignment: Alignment, log_weights: Float[Tensor, "batch target source"]
    ) -> Float[Tensor, "batch target"]:
        """E log f under the weights."""
        if self.samples is None or not self.samples_now:
            return alignment.every(log_weights, self.chunk).expectation(alignment.log_likelihood)
        chosen = categorical.draw(log_weights, self.samples, current_generator())
        log_f = alignment.log_likelihood(contexts.pick(alignment.memory, chosen))
        log_chosen = categorical.at(log_weights, chosen)
        value = log_f
        reward = log_f.detach()
        if self.baseline == "soft":
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.train_baseline):
                soft = alignment.soft_log_likelihood()
            reward = reward - soft.detach()
            value = value + (soft - soft.detach())
        elif self.baseline == "others":
            reward = (reward - reward.mean(0)) * (len(reward) / (len(reward) - 1))
        return (value + reward * (log_chosen - log_chosen.detach())).mean(0)
