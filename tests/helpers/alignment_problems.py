"""What the tests of alignments share: a small problem that can be enumerated, copied as often as there are draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.alignment import Objective

SOURCE, FEATURES, WORDS = 4, 3, 5
MASK = torch.tensor([True, True, False, True])
DRAWS = 100_000


@dataclass
class Problem:
    """Copies of one problem with one target token; every copy has its own scores and its own likelihood."""

    prior: Tensor
    posterior: Tensor
    memory: Tensor
    theta: Tensor
    mask: Tensor

    def log_f(self, contexts: Tensor) -> Tensor:
        """log p(y = 0 | context) = log softmax(tanh(context) · theta)_0: not linear in the context."""
        logits = torch.einsum("cbtf,bfw->cbtw", contexts.tanh(), self.theta)
        return logits.log_softmax(-1)[..., 0]

    def every_log_f(self) -> Tensor:
        """log f of each position that is not masked, [batch, kept]; computed apart from the library's enumeration."""
        each = torch.einsum("bsf,bfw->bsw", self.memory.tanh(), self.theta).log_softmax(-1)[..., 0]
        return each[:, MASK]

    def log_p(self) -> Tensor:
        return self.prior[:, 0, MASK].log_softmax(-1)

    def log_q(self) -> Tensor:
        return self.posterior[:, 0, MASK].log_softmax(-1)

    def run(self, objective: Objective) -> tuple[Tensor, Tensor]:
        """The loss and the KL of each copy."""
        posterior = self.posterior if objective.needs_posterior else None
        with ba.record() as latents:
            loss = objective(self.log_f, self.memory, self.prior, posterior, source_mask=self.mask)
        return loss.squeeze(1), latents.local_kl

    def gradients(self, total: Tensor) -> dict[str, Tensor]:
        """Gradients of a sum over the copies: each copy's own, where not masked."""
        leaves = {"prior": self.prior, "posterior": self.posterior, "theta": self.theta}
        found = torch.autograd.grad(total.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True))


def problem(copies: int = 1, seed: int = 1, dtype: torch.dtype = torch.float64) -> Problem:
    """The same problem that many times."""
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int, scale: float = 1.0) -> Tensor:
        one = torch.randn(*shape, generator=generator, dtype=dtype) * scale
        return one.expand(copies, *shape).clone()

    prior, posterior = make(1, SOURCE), make(1, SOURCE)
    memory, theta = make(SOURCE, FEATURES, scale=1.5), make(FEATURES, WORDS, scale=1.5)
    for leaf in (prior, posterior, theta):
        leaf.requires_grad_(True)
    return Problem(prior, posterior, memory, theta, MASK.expand(copies, SOURCE))


def assert_unbiased(objective: Objective, exact: Callable[[Problem], Tensor], draws: int = DRAWS) -> dict[str, Tensor]:
    """The mean over the draws of each gradient is within 4 standard errors of the exact one; returns the gradients of each draw."""
    expected = problem()
    wanted = expected.gradients(exact(expected))
    sampled = problem(draws)
    loss, kl = sampled.run(objective)
    found = sampled.gradients(loss + kl)
    for name, gradient in found.items():
        error = gradient.std(0) / draws**0.5
        distance = (gradient.mean(0) - wanted[name][0]).abs()
        assert (distance <= 4 * error + 1e-9).all(), (name, gradient.mean(0), wanted[name][0], error)
    return found
