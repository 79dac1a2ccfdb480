"""Gaussian logits with a learned scale (Cinquin 2021)."""

from __future__ import annotations

from torch import Tensor, nn

from bayesattn.numerics.counter_noise import Noise, standard_normal
from bayesattn.numerics.positive import THESIS_START
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.fused_form import FusedForm
from bayesattn.posteriors.learned import PerHead, learned_positive
from bayesattn.posteriors.rows import Rows
from bayesattn.support import checks
from bayesattn.support.configurable import register


@register
class Gaussian(Posterior):
    """log S ~ N(scores, sigma²) with learned sigma; prior N(scores, prior_sigma²), centred on the same logits.

        log S = scores + sigma · epsilon,    epsilon ~ N(0, 1)
        KL    = 1/2 Σ sigma²/prior_sigma² - 1 - ln(sigma²/prior_sigma²)

    over the pairs that count. The KL has no gradient to the logits; it pulls sigma to prior_sigma.

    Args:
        prior_sigma: scale of the prior (the thesis does not state its value).
        initial_sigma: where sigma starts. The thesis starts at softplus(-7) = 0.00091: `Gaussian.thesis(max_len)`.
        data_dependent: compute sigma from the scores with a small network.
        max_len: None (default): parameters that depend on no length: one sigma per head, or, data-dependent, a network on
            each log weight and its row's statistics. A number: the thesis's forms, tied to positions up to that length: a free
            sigma for each (query, key) position, or a network from the whole row of scores to the row's sigmas.
        hidden: width of the network.

    >>> import torch, bayesattn as ba
    >>> q = torch.randn(2, 4, 5, 8)
    >>> ba.attend(q, q, q, ba.Gaussian().bind(num_heads=4, head_dim=8)).shape
    torch.Size([2, 4, 5, 8])
    """

    counter_noise = True

    def __init__(
        self,
        prior_sigma: float = 1.0,
        initial_sigma: float = 0.1,
        data_dependent: bool = False,
        max_len: int | None = None,
        hidden: int = 16,
    ):
        super().__init__()
        self.prior_sigma = checks.positive("prior_sigma", prior_sigma, "It is the scale of the prior over logits.")
        self.initial_sigma = checks.positive("initial_sigma", initial_sigma)
        if self.initial_sigma / self.prior_sigma > 1e15:
            raise ValueError(
                f"initial_sigma={initial_sigma!r} with prior_sigma={prior_sigma!r} has a KL beyond float32: keep their ratio below 1e15."
            )
        self.data_dependent = data_dependent
        self.max_len = None if max_len is None else checks.whole("max_len", max_len)
        self.hidden = checks.whole("hidden", hidden)
        self.scale: nn.Module | None = None

    @classmethod
    def thesis(cls, max_len: int, data_dependent: bool = False) -> Gaussian:
        """As in the thesis: tied to positions up to `max_len`, sigma starting at softplus(-7)."""
        return cls(initial_sigma=THESIS_START, data_dependent=data_dependent, max_len=max_len)

    def _make_parameters(self, num_heads: int, head_dim: int) -> None:
        self.scale = learned_positive(
            num_heads=num_heads,
            start=self.initial_sigma,
            max_len=self.max_len,
            data_dependent=self.data_dependent,
            hidden=self.hidden,
            rows_only=False,
        )

    @property
    def needs_binding(self) -> bool:
        return self.scale is None

    def sigma(self, scores: Tensor, rows: Rows) -> Tensor:
        """The scale of each logit, broadcastable against the scores."""
        assert self.scale is not None  # check_posterior() has said so
        return self.scale(scores, rows)

    def log_sample(self, scores: Tensor, rows: Rows, generator: Noise = None) -> Tensor:
        return scores + self.sigma(scores, rows) * standard_normal(scores, generator)

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        return rows.total_of_pairs(self._kl_of_pair(self.sigma(scores, rows)))

    def log_prior(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        return scores  # the prior is centred on the same logits

    @property
    def has_fused_form(self) -> bool:
        return isinstance(self.scale, PerHead)  # and not a scale for each pair

    def fused_form(self, keys: Tensor, queries: int, with_kl: bool) -> FusedForm:
        assert isinstance(self.scale, PerHead)  # has_fused_form has said so
        sigma = self.scale.values(to_compute(keys)).view(-1, 1)
        return FusedForm(kl=lambda sums: sums.size * self._kl_of_pair(sigma), noise="normal", scale=sigma)

    def _kl_of_pair(self, sigma: Tensor) -> Tensor:
        ratio = sigma / self.prior_sigma
        return ratio.square() / 2.0 - 0.5 - ratio.log()
