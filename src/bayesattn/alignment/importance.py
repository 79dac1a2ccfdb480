"""The multi-sample (importance-weighted) bound of a categorical alignment."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bayesattn.alignment import categorical, contexts
from bayesattn.alignment.base import Alignment, Objective
from bayesattn.alignment.mixture import CHUNK
from bayesattn.scopes.modes import current_generator
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.support.configurable import register


@register
class Importance(Objective):
    """L_K = log (1/K) Σ_k w_k,  w_k = p(z_k) f(y | memory_{z_k}) / q(z_k),  z_k ~ q: between the ELBO (K = 1) and the marginal (K → ∞).

    Prior and likelihood get the bound's own gradient, Σ_k w~_k grad log(p f)(z_k), w~ the normalised weights. The bound is one
    term: there is no separate KL, and a `kl_weight` has nothing to act on. In eval mode it is the marginal, enumerated.

    Args:
        samples: K, at least 2 (the released code: 5).
        gradient: what trains q. "vimco" (default; Mnih and Rezende 2016): the unbiased gradient of the bound, with
            leave-one-out baselines. "wake": Σ_k w~_k grad log q(z_k), as in the released code ("wsram"): q moves
            towards the true posterior; not the gradient of the bound.
        chunk: how many (choice, example, target token) the likelihood sees at once when enumerating.
    """

    needs_posterior: ClassVar[bool] = True

    def __init__(self, samples: int = 5, gradient: Literal["vimco", "wake"] = "vimco", chunk: int = CHUNK):
        super().__init__()
        self.samples = checks.whole("samples", samples, 2, "With one sample use Variational(samples=1).")
        self.gradient = checks.one_of("gradient", gradient, ("vimco", "wake"))
        self.chunk = checks.whole("chunk", chunk)

    def loss(self, alignment: Alignment) -> tuple[Tensor, Tensor]:
        if not self.samples_now:
            loss = -alignment.every(alignment.log_prior, self.chunk).log_probability(alignment.log_likelihood)
            return loss, torch.zeros_like(loss)
        chosen = categorical.draw(alignment.log_posterior, self.samples, current_generator())
        log_q = categorical.at(alignment.log_posterior, chosen)
        log_joint = categorical.at(alignment.log_prior, chosen) + alignment.log_likelihood(
            contexts.pick(alignment.memory, chosen)
        )
        if self.gradient == "vimco":
            log_w = log_joint - log_q
            signal = _leave_one_out(log_w.detach())
        else:
            log_w = log_joint - log_q.detach()
            signal = log_w.detach().softmax(0)
        bound = log_w.logsumexp(0) - math.log(self.samples)
        loss = -(bound + (signal * (log_q - log_q.detach())).sum(0))
        return loss, torch.zeros_like(loss)


def _leave_one_out(log_w: Float[Tensor, "samples batch target"]) -> Float[Tensor, "samples batch target"]:
    """What draw k added to the bound: L_K minus the same with w_k replaced by the geometric mean of the others."""
    samples = log_w.shape[0]
    others = (log_w.sum(0) - log_w) / (samples - 1)
    replaced = torch.where(torch.eye(samples, dtype=torch.bool, device=log_w.device)[:, :, None, None], others, log_w)
    return log_w.logsumexp(0) - replaced.logsumexp(1)
