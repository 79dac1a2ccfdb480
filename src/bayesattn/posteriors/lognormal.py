"""Lognormal weights (Bayesian Attention Modules, Fan et al. 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from bayesattn.numerics.counter_noise import Noise, standard_normal
from bayesattn.numerics.formulas import square_with_linear_tail
from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.fused_form import FusedForm, RowSums
from bayesattn.posteriors.priors import LogNormalFamily, LogNormalPrior
from bayesattn.posteriors.rows import Rows
from bayesattn.support import checks
from bayesattn.support.configurable import register


@register
class LogNormal(Posterior):
    """log S ~ N(scores - sigma²/2, sigma²), so that E[S] = exp(scores); prior LogNormal(m, s²).

        log S = scores + sigma · epsilon,    epsilon ~ N(0, 1)     (the constant -sigma²/2 cancels in W)
        KL    = Σ log(s / sigma) + (sigma² + (scores - sigma²/2 - m)²) / (2 s²) - 1/2

    over the pairs that count. sigma → 0 is softmax. The weights are those of Gaussian logits with one fixed scale.

    Args:
        sigma: scale of log S, fixed, the same for all layers and heads (the papers: 1e-15 to 0.1).
        prior: `LogNormalPrior` (fixed, BAM-LF; the default) or `ContextualLogNormal` (from the keys, BAM-LC).
        kl_scores: "normalised" (default, the released code) or "raw" (the paper): see `Weibull`.

    >>> import torch, bayesattn as ba
    >>> q = torch.randn(2, 4, 5, 8)
    >>> ba.attend(q, q, q, ba.LogNormal(sigma=0.5)).shape
    torch.Size([2, 4, 5, 8])
    """

    counter_noise = True

    def __init__(
        self,
        sigma: float = 0.1,
        prior: LogNormalFamily | None = None,
        kl_scores: Literal["normalised", "raw"] = "normalised",
    ):
        super().__init__()
        self.sigma = checks.positive(
            "sigma", sigma, "It is the scale of the log weights; small values mean little noise."
        )
        if prior is not None and not isinstance(prior, LogNormalFamily):
            raise TypeError(
                f"prior of LogNormal must be LogNormalPrior or ContextualLogNormal, got {type(prior).__name__}."
            )
        self.prior = LogNormalPrior() if prior is None else prior
        if self.prior.sigma is not None and self.sigma**2 / self.prior.sigma > 1e18:
            raise ValueError(
                f"sigma={sigma!r} with a prior sigma of {self.prior.sigma!r} has a KL beyond float32: choose a prior sigma of at "
                f"least {self.sigma**2 / 1e18:g}, or leave it None."
            )
        self.kl_scores = checks.one_of("kl_scores", kl_scores, ("normalised", "raw"))

    def _make_parameters(self, num_heads: int, head_dim: int) -> None:
        self.prior.bind(head_dim)

    @property
    def needs_binding(self) -> bool:
        return self.prior.needs_binding

    def log_sample(self, scores: Tensor, rows: Rows, generator: Noise = None) -> Tensor:
        return scores + self.sigma * standard_normal(scores, generator)

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        log_mean = rows.log_softmax(scores) if self.kl_scores == "normalised" else scores
        scale = self.prior.scale(self.sigma)
        # in units of the prior's scale: sigma**2 alone squared would overflow
        distance = (log_mean - self.prior.log_location(keys, rows)) / scale - self.sigma * (self.sigma / scale) / 2.0
        ratio = torch.as_tensor(self.sigma / scale, dtype=scores.dtype, device=scores.device)
        constant = ratio.square() / 2.0 - ratio.log() - 0.5
        return rows.total_of_pairs(square_with_linear_tail(distance) / 2.0 + constant)

    def log_prior(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        return self.prior.log_location(keys, rows)

    @property
    def has_fused_form(self) -> bool:
        scale = self.prior.scale(self.sigma)
        # beyond these the squares of the KL have a linear tail, which sums of squares do not
        extreme = not isinstance(scale, Tensor) and (scale < 1e-6 or self.sigma**2 / scale > 1e14)
        return self.prior.fusable and not extreme

    def fused_form(self, keys: Tensor, queries: int, with_kl: bool) -> FusedForm:
        return FusedForm(
            kl=self._kl_of_rows,
            noise="normal",
            scale=self.sigma,
            statistics=self.prior.statistics,
            wants_total=self.kl_scores == "normalised",
            prior_logits=self.prior.share_logits(keys) if with_kl else None,
        )

    def _kl_of_rows(self, sums: RowSums) -> Tensor:
        """The KL summed over each row, from Σ x and Σ x² where the distance of a pair is (x + offset) / scale."""
        scale = self.prior.scale(self.sigma)
        offset = -(sums.total + self.prior.offset(sums)) / scale - self.sigma * (self.sigma / scale) / 2.0
        squares = sums.second / scale / scale + 2.0 * offset * (sums.first / scale) + sums.size * offset.square()
        ratio = torch.as_tensor(self.sigma / scale, dtype=sums.first.dtype, device=sums.first.device)
        return squares / 2.0 + sums.size * (ratio.square() / 2.0 - ratio.log() - 0.5)
