"""Variational attention: the ELBO with a posterior from an inference network."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from bayesattn.alignment import categorical
from bayesattn.alignment.base import Alignment
from bayesattn.alignment.expectation import ExpectedLogLikelihood
from bayesattn.support.configurable import register


@register
class Variational(ExpectedLogLikelihood):
    """E_{z ~ q} log f(y | memory_z) - KL(q ‖ p); equal to the marginal where q is the true posterior.

    The KL is analytic and has gradients to q and p. Drawn alignments give p no gradient but that of the KL.

    Args:
        samples: None (default) enumerates; a number draws that many alignments in training (the paper: 1).
        baseline: what is subtracted from the reward: "soft" (default), log f(E_p z) of the same step, "others", the mean
            over the other draws (samples=2 or more), or "none".
        train_baseline: also train the soft pass, as an option of the released code does.
        chunk: how many (choice, example, target token) the likelihood sees at once when enumerating.
    """

    needs_posterior: ClassVar[bool] = True

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        log_q = alignment.log_posterior
        return -self.expected(alignment, log_q), categorical.kl(log_q, alignment.log_prior)
