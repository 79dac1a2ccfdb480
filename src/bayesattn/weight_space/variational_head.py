"""A variational Bayesian last layer (VBLL, Harrison et al. 2024, discriminative classification): trained without sampling."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.scopes import modes, recording
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.weight_space.heads import linear_head, put_head, row_noise
from bayesattn.weight_space.selection import Where

Model = TypeVar("Model", bound=nn.Module)


class VariationalHead(modes.DrawsOutputs, nn.Module):
    """Logits W φ + b with W ~ N(weight, exp(2 log_scale)), each weight for itself, and a prior N(0, prior_scale²).

    In training it gives the mean logits and records what the bound adds to their cross-entropy: for each example
    logsumexp(mean + variance / 2) - logsumexp(mean), from Jensen's inequality, and once the KL of the weights. `ba.elbo` adds both.
    In eval mode inside `sampling()` the logits of each row are drawn.
    """

    def __init__(self, in_features: int, out_features: int, prior_scale: float = 1.0, initial_scale: float = 0.03):
        super().__init__()
        self.prior_scale = checks.positive("prior_scale", prior_scale)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        start = math.log(checks.positive("initial_scale", initial_scale))
        self.log_scale = nn.Parameter(torch.full((out_features, in_features), start))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, input: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape classes"]:
        logits = F.linear(input, self.weight, self.bias)
        if not self.training:
            if not modes.is_sampling():
                return logits
            return logits + self.variances(input).sqrt() * row_noise(logits)
        if input.dim() != 2:
            raise ValueError(
                f"VariationalHead takes one vector of features for each example, [batch, features], in training, got "
                f"{tuple(input.shape)}: it does not know which positions are padding. Take mean_field(model, where='last') for taggers."
            )
        if recording.kl_is_wanted():
            gap = (logits + 0.5 * self.variances(input)).logsumexp(-1) - logits.logsumexp(-1)
            one = torch.ones_like(gap)
            recording.add_local(gap, one, one, one, self)
            recording.add_global(self.kl(), self)
        return logits

    def variances(self, input: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape classes"]:
        """Of the logits."""
        return F.linear(input.square(), (2.0 * self.log_scale).exp())

    def variance(self, input: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape"]:
        """The variance of the logits, the mean over classes."""
        return self.variances(input).mean(-1)

    def kl(self) -> Float[Tensor, ""]:
        """KL of the weights to their prior."""
        squares = ((2.0 * self.log_scale).exp() + self.weight.square()) / self.prior_scale**2
        return 0.5 * (squares - 1.0 - 2.0 * self.log_scale + 2.0 * math.log(self.prior_scale)).sum()

    def extra_repr(self) -> str:
        """What it was made with."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, prior_scale={self.prior_scale:g}"


def vbll_head(model: Model, where: Where = "last", *, prior_scale: float = 1.0, initial_scale: float = 0.03) -> Model:
    """Put a `VariationalHead` in place of one linear layer of a classifier, to be trained with the rest by `ba.elbo`.

    Of the paper's layer this is the diagonal form without noise of the logits.

    Args:
        model: changed in place. Its new head starts untrained.
        where: the layer, see `choose_layers`; by default the last one that has parameters.
        prior_scale: of the prior N(0, prior_scale²) of every weight.
        initial_scale: standard deviation that every weight starts with.

    >>> import torch, bayesattn as ba
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    >>> model = ba.weight_space.vbll_head(model)
    >>> x, y = torch.randn(50, 3), torch.randint(4, (50,))
    >>> with ba.record() as latents:
    ...     nll = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    >>> ba.elbo(nll, latents, dataset_size=50).backward()
    >>> ba.predict(model, x, samples=8).mutual_information.shape
    torch.Size([50])
    """
    name, layer = linear_head(model, where)
    put_head(model, name, VariationalHead(layer.in_features, layer.out_features, prior_scale, initial_scale))
    return model
