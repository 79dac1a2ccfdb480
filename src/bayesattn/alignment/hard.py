"""Hard attention: the expected log-likelihood under the prior."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.alignment.base import Alignment
from bayesattn.alignment.expectation import ExpectedLogLikelihood
from bayesattn.support.configurable import register


@register
class Hard(ExpectedLogLikelihood):
    """E_{z ~ p} log f(y | memory_z): the ELBO with q = p, whose KL is 0; the loosest of the bounds.

    Args:
        samples: None (default) enumerates; a number draws that many alignments in training (REINFORCE).
        baseline: what is subtracted from the reward: "soft" (default), log f(E_p z) of the same step, "others", the mean
            over the other draws (samples=2 or more), or "none".
        train_baseline: also train the soft pass, as an option of the released code does.
        chunk: how many (choice, example, target token) the likelihood sees at once when enumerating.
    """

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        loss = -self.expected(alignment, alignment.log_prior)
        return loss, torch.zeros_like(loss)
