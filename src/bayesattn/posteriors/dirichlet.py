"""Dirichlet attention with a learned sharpness (Cinquin 2021)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from bayesattn.numerics.counter_noise import Noise
from bayesattn.numerics.draws import approximate_log_gamma_rsample, log_gamma_rsample
from bayesattn.numerics.formulas import SMALLEST_LOG_CONCENTRATION, gamma_kl
from bayesattn.numerics.positive import THESIS_START
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.fused_form import FusedForm, RowSums
from bayesattn.posteriors.learned import LearnedPositive, PerHead, PerPosition, learned_positive
from bayesattn.posteriors.rows import Rows
from bayesattn.support import checks
from bayesattn.support.configurable import register


@register
class Dirichlet(Posterior):
    """W ~ Dirichlet(alpha) in each row, alpha = a · softmax(scores), with learned sharpness a; prior Dirichlet(p, ..., p).

        log S = log Gamma(alpha) draws,    W = S / Σ S
        KL    = Σ lgamma(p) - lgamma(alpha) + (alpha - p) psi(alpha)                              (multi-Gamma, default)
        KL    = lgamma(a) - lgamma(K p) + Σ lgamma(p) - lgamma(alpha) + (alpha - p)(psi(alpha) - psi(a))    (Dirichlet)

    K is the number of keys of the row. E[W] = softmax(scores) exactly. Draws and gradients are exact at every
    concentration: they are made in log space, where the thesis's float32 draws underflow, tie and leak to masked keys.

    Args:
        prior_concentration: p (the thesis: "as in Joo et al.", who use 0.99; 1 is uniform over the simplex).
        initial_sharpness: where a starts. The thesis starts at softplus(-7) = 0.00091, near one-hot attention with a KL of
            6e5 nats for each row of 24 keys: `Dirichlet.thesis(max_len)`.
        data_dependent: compute a from the scores with a small network.
        max_len: None (default): parameters that depend on no length: one a per head, or, data-dependent, a network on each
            row's statistics. A number: the thesis's forms: a free a for each query position, or a network on the row.
        approximate: draw by the thesis's inverse-CDF approximation; its variance is too small for alpha > 1.
        kl_form: "multi-gamma" (default, the thesis: the KL of S) or "dirichlet" (the KL of W, smaller).
        hidden: width of the network.

    >>> import torch, bayesattn as ba
    >>> q = torch.randn(2, 4, 5, 8)
    >>> ba.attend(q, q, q, ba.Dirichlet().bind(num_heads=4, head_dim=8)).shape
    torch.Size([2, 4, 5, 8])
    """

    counter_noise = True

    def __init__(
        self,
        prior_concentration: float = 1.0,
        initial_sharpness: float = 10.0,
        data_dependent: bool = False,
        max_len: int | None = None,
        approximate: bool = False,
        kl_form: Literal["multi-gamma", "dirichlet"] = "multi-gamma",
        hidden: int = 16,
    ):
        super().__init__()
        self.prior_concentration = checks.positive("prior_concentration", prior_concentration)
        self.initial_sharpness = checks.positive("initial_sharpness", initial_sharpness)
        self.data_dependent = data_dependent
        self.max_len = None if max_len is None else checks.whole("max_len", max_len)
        self.approximate = approximate
        self.kl_form = checks.one_of("kl_form", kl_form, ("multi-gamma", "dirichlet"))
        self.hidden = checks.whole("hidden", hidden)
        self.sharpness: LearnedPositive | None = None

    @classmethod
    def thesis(cls, max_len: int, data_dependent: bool = False, approximate: bool = False) -> Dirichlet:
        """As in the thesis: tied to positions up to `max_len`, a starting at softplus(-7), prior 0.99."""
        return cls(
            prior_concentration=0.99,
            initial_sharpness=THESIS_START,
            data_dependent=data_dependent,
            max_len=max_len,
            approximate=approximate,
        )

    def _make_parameters(self, num_heads: int, head_dim: int) -> None:
        self.sharpness = learned_positive(
            num_heads=num_heads,
            start=self.initial_sharpness,
            max_len=self.max_len,
            data_dependent=self.data_dependent,
            hidden=self.hidden,
            rows_only=True,
        )

    @property
    def needs_binding(self) -> bool:
        return self.sharpness is None

    def log_concentration(self, scores: Tensor, rows: Rows) -> Tensor:
        """log alpha of each pair."""
        assert self.sharpness is not None  # check_posterior() has said so
        log_sharpness = self.sharpness.log(scores, rows)
        log_alpha = rows.to_pairs(log_sharpness) + rows.log_softmax(scores)
        return log_alpha.clamp_min(SMALLEST_LOG_CONCENTRATION)

    def log_sample(self, scores: Tensor, rows: Rows, generator: Noise = None) -> Tensor:
        draw = approximate_log_gamma_rsample if self.approximate else log_gamma_rsample
        return draw(self.log_concentration(scores, rows), generator)

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        log_q = self.log_concentration(scores, rows)
        log_p = torch.full_like(log_q, math.log(self.prior_concentration))
        multi_gamma = rows.total_of_pairs(gamma_kl(log_q, log_p))
        if self.kl_form == "multi-gamma":
            return multi_gamma
        total_q = rows.sum(log_q.exp())
        total_p = rows.sizes(scores) * self.prior_concentration
        # the identity KL_multi-Gamma = KL_Dirichlet + KL_Gamma(Σ q ‖ Σ p)
        return multi_gamma - rows.total_of_rows(gamma_kl(total_q.clamp_min(1e-20).log(), total_p.log()))

    @property
    def has_fused_form(self) -> bool:
        # and not a sharpness that is computed from the scores
        return isinstance(self.sharpness, (PerHead, PerPosition)) and not self.approximate

    def fused_form(self, keys: Tensor, queries: int, with_kl: bool) -> FusedForm:
        if isinstance(self.sharpness, PerPosition):
            log_sharpness = self.sharpness.log_of_rows(queries, to_compute(keys))
        else:
            assert isinstance(self.sharpness, PerHead)  # has_fused_form has said so
            log_sharpness = self.sharpness.log_values(to_compute(keys)).view(-1, 1)
        return FusedForm(
            kl=self._kl_of_rows,
            noise="gamma",
            scale=log_sharpness,
            statistics="gamma",
            log_concentration=math.log(self.prior_concentration),
        )

    def _kl_of_rows(self, sums: RowSums) -> Tensor:
        if self.kl_form == "multi-gamma":
            return sums.first
        log_total_p = (sums.size.clamp_min(1.0) * self.prior_concentration).log()
        return sums.first - sums.filled * gamma_kl(sums.second.clamp_min(1e-20).log(), log_total_p)
