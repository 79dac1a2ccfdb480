"""Weibull weights (Bayesian Attention Modules, Fan et al. 2020)."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from bayesattn.numerics.counter_noise import Noise, log_exponential
from bayesattn.numerics.formulas import EULER_GAMMA, exp_with_linear_tail, log_gamma_function
from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.fused_form import FusedForm, RowSums
from bayesattn.posteriors.priors import GammaFamily, GammaPrior
from bayesattn.posteriors.rows import Rows
from bayesattn.support import checks
from bayesattn.support.configurable import register


@register
class Weibull(Posterior):
    """S ~ Weibull(shape k, scale exp(scores) / Gamma(1 + 1/k)), so that E[S] = exp(scores); prior Gamma(alpha, rate beta).

        log S = scores + log(E) / k,    E ~ Exponential(1)
        KL    = Σ gamma_E alpha/k - alpha log(lambda) + log k + beta E[S] - gamma_E - 1 - alpha log(beta) + lgamma(alpha)

    over the pairs that count; lambda is the scale, gamma_E Euler's constant. k → ∞ is softmax, k = 1 very noisy.
    E[S] is matched, E[W] is not exactly softmax(scores): the point estimate of eval mode is a plug-in, as in the paper.

    Args:
        k: shape, fixed, the same for all layers and heads (the papers: 1 to 2000).
        prior: `GammaPrior` (fixed, BAM-WF; default alpha = beta = 1) or `ContextualGamma` (from the keys, BAM-WC).
        kl_scores: what the KL takes for log E[S]. "normalised" (default): log softmax(scores), as in the released code.
            "raw": the scores, as the paper prints it. Both are true KLs, of S and of S times a constant for each row, and
            give the same W. The default is invariant to a shift of the scores, as attention is, lies on the scale of the
            contextual prior, and cannot overflow; "raw" also pins the absolute scale of the logits: its gradient is
            beta exp(scores) - alpha (above scores of 60, exp is continued by its tangent).

    >>> import torch, bayesattn as ba
    >>> posterior = ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=0.01, hidden=5)).bind(num_heads=4, head_dim=8)
    >>> q = torch.randn(2, 4, 5, 8)
    >>> with ba.record() as latents:
    ...     output = ba.attend(q, q, q, posterior, is_causal=True)
    >>> output.shape, latents.local_kl.shape
    (torch.Size([2, 4, 5, 8]), torch.Size([2]))
    """

    counter_noise = True

    def __init__(
        self,
        k: float = 10.0,
        prior: GammaFamily | None = None,
        kl_scores: Literal["normalised", "raw"] = "normalised",
    ):
        super().__init__()
        self.k = checks.positive("k", k, "It is the shape of the Weibull distribution; large values mean little noise.")
        if prior is not None and not isinstance(prior, GammaFamily):
            raise TypeError(f"prior of Weibull must be GammaPrior or ContextualGamma, got {type(prior).__name__}.")
        self.prior = GammaPrior() if prior is None else prior
        self.kl_scores = checks.one_of("kl_scores", kl_scores, ("normalised", "raw"))

    def _make_parameters(self, num_heads: int, head_dim: int) -> None:
        self.prior.bind(head_dim)

    @property
    def needs_binding(self) -> bool:
        return self.prior.needs_binding

    def log_sample(self, scores: Tensor, rows: Rows, generator: Noise = None) -> Tensor:
        return scores + log_exponential(scores, generator) / self.k

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        per_alpha = self._per_alpha
        alpha, log_gammas = self.prior.concentration(keys, rows)
        one = scores.new_ones(())
        if self.kl_scores == "normalised":
            log_means, means = rows.log_softmax(scores), rows.total_of_rows(one)  # the means of a row sum to one
        else:
            log_means, means = scores, rows.total_of_pairs(exp_with_linear_tail(scores))
        of_alpha = rows.total_of_pairs(alpha * (per_alpha - log_means) + log_gammas)
        constant = math.log(self.k) - EULER_GAMMA - 1.0
        return of_alpha + self.prior.beta * means + constant * rows.total_of_pairs(one)

    @property
    def _per_alpha(self) -> float:
        """What alpha is multiplied by in the KL, but for the log mean."""
        return EULER_GAMMA / self.k + math.lgamma(1.0 + 1.0 / self.k) - math.log(self.prior.beta)

    def log_prior(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        return self.prior.log_alpha(keys, rows)  # the mean is alpha / beta

    @property
    def has_fused_form(self) -> bool:
        return self.prior.fusable

    def fused_form(self, keys: Tensor, queries: int, with_kl: bool) -> FusedForm:
        logits = self.prior.share_logits(keys) if with_kl else None
        normalised = self.kl_scores == "normalised"
        return FusedForm(
            kl=self._kl_of_rows,
            noise="log_exponential",
            scale=1.0 / self.k,
            statistics="sum" if logits is None else "shares",
            wants_total=normalised,
            wants_exponentials=not normalised,
            prior_logits=logits,
            log_concentration=self.prior.log_alpha_of_whole,
        )

    def _kl_of_rows(self, sums: RowSums) -> Tensor:
        """`kl` of each row: it is linear in log_mean, exp(log_mean) and lgamma(alpha)."""
        if sums.prior_total is None:
            log_alpha = self.prior.log_alpha_of_all(sums.first)
            alpha, of_alpha, log_gammas = log_alpha.exp(), sums.size, sums.size * log_gamma_function(log_alpha)
        else:
            alpha, of_alpha, log_gammas = math.exp(self.prior.log_alpha_of_whole), sums.filled, sums.second
        log_means = sums.first - of_alpha * sums.total
        means = sums.filled if self.kl_scores == "normalised" else sums.exponentials
        constant = math.log(self.k) - EULER_GAMMA - 1.0
        return (
            alpha * (self._per_alpha * of_alpha - log_means)
            + self.prior.beta * means
            + log_gammas
            + sums.size * constant
        )
