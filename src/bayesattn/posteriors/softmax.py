"""No noise: ordinary attention."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesattn.numerics.counter_noise import Noise
from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.fused_form import FusedForm
from bayesattn.posteriors.rows import Rows
from bayesattn.support.configurable import register


@register
class Softmax(Posterior):
    """The posterior with no noise: log S = scores, W = softmax(scores), KL = 0.

    Attention with it is `F.scaled_dot_product_attention`, and a model converted with it is the original.

    >>> import torch, bayesattn as ba
    >>> q = torch.randn(2, 4, 5, 8)
    >>> ours = ba.attend(q, q, q, ba.Softmax())
    >>> torch.allclose(ours, torch.nn.functional.scaled_dot_product_attention(q, q, q), atol=1e-5)
    True
    """

    def __init__(self) -> None:
        super().__init__()

    def log_sample(self, scores: Tensor, rows: Rows, generator: Noise = None) -> Tensor:
        return scores

    def fused_form(self, keys: Tensor, queries: int, with_kl: bool) -> FusedForm:
        return FusedForm(kl=lambda sums: torch.zeros_like(sums.size))

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        return rows.total_of_rows(scores.new_zeros(()))
