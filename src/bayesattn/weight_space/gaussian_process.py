"""A Gaussian process in place of a network's last layer (SNGP, Liu et al. 2020): random features, trained as any layer is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bayesattn.prediction.calibration.random_features import PrecisionSums, ProcessVariance, RandomFeatures
from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.weight_space.heads import linear_head, only_head, put_head, row_noise, training_features
from bayesattn.weight_space.selection import Where

Model = TypeVar("Model", bound=nn.Module)


class GaussianProcessHead(modes.DrawsOutputs, nn.Module):
    """Logits β^T φ(h) with random features φ of the normalised input that stay as they were drawn; β is trained.

    After `fit_gp_head`, `variance` is known, and inside `sampling()` in eval mode the logits of each row are drawn.
    All of it is in the state dict.
    """

    weight: Tensor
    phase: Tensor
    root: Tensor
    fitted: Tensor

    def __init__(self, in_features: int, out_features: int, random: int = 1024, ridge: float = 1e-3, seed: int = 0):
        super().__init__()
        drawn = RandomFeatures.drawn(in_features, checks.whole("random", random), seed)
        self.ridge = checks.positive("ridge", ridge)
        self.register_buffer("weight", drawn.weight)
        self.register_buffer("phase", drawn.phase)
        self.register_buffer("root", torch.zeros(random, random, dtype=torch.float64))
        self.register_buffer("fitted", torch.tensor(False))
        self.output = nn.Linear(random, out_features, bias=False)

    def random_features(self) -> RandomFeatures:
        """φ, of norm 1 on average; what `ba.calibrate` takes for its process_variance."""
        return RandomFeatures(self.weight, self.phase)

    def forward(self, features: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape outputs"]:
        logits = self.output(self.random_features()(features) * math.sqrt(len(self.phase)))
        if self.training or not modes.is_sampling() or not bool(self.fitted):
            return logits
        return logits + self.variance(features).sqrt().unsqueeze(-1).to(logits) * row_noise(logits)

    def variance(self, features: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape"]:
        """The posterior variance of every logit, in parts of the prior's: near 1 far from all training data."""
        if not bool(self.fitted):
            raise RuntimeError(
                "The head's covariance is not known yet: call ba.weight_space.fit_gp_head after training."
            )
        return ProcessVariance(self.weight, self.phase, self.root, self.ridge)(features)

    def extra_repr(self) -> str:
        """What it was made with."""
        return f"{self.weight.shape[1]}, random={len(self.phase)}, ridge={self.ridge:g}"


def gp_head(model: Model, where: Where = "last", *, random: int = 1024, ridge: float = 1e-3, seed: int = 0) -> Model:
    """Put a `GaussianProcessHead` in place of one linear layer of `model`, to be trained with the rest by the usual loss.

    Args:
        model: changed in place. Its new head starts untrained.
        where: the layer, see `choose_layers`; by default the last one that has parameters.
        random: random features.
        ridge: r of the precision r I + Σ φ φ^T.
        seed: of the random features.

    >>> import torch, bayesattn as ba
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> model = ba.weight_space.gp_head(model, random=64)  # train it, then:
    >>> x, y = torch.randn(50, 3), torch.randint(2, (50,))
    >>> model = ba.weight_space.fit_gp_head(model.eval(), (x, y))
    >>> ba.predict(model, x, samples=4).mutual_information.shape
    torch.Size([50])
    """
    name, layer = linear_head(model, where)
    put_head(model, name, GaussianProcessHead(layer.in_features, layer.out_features, random, ridge, seed))
    return model


def fit_gp_head(model: Model, train: Any, *, output: Callable[[Any], Any] | None = None, max_rows: int = 1024) -> Model:
    """The exact covariance of the head of a trained model, in one pass over its training data in eval mode.

    Args:
        model: with a head of `gp_head`.
        train: (inputs, labels), a mapping with "labels", or batches of those; labels are not used.
        output: takes the output out of what the model returns; by default `.logits` if there is such an attribute.
        max_rows: largest batch.
    """
    name, head = only_head(model, GaussianProcessHead, "Gaussian process heads (ba.weight_space.gp_head)")
    sums = PrecisionSums(head.random_features(), head.ridge)
    for features, _ in training_features(model, name, train, output, max_rows):
        sums.add(features)
    head.root.copy_(sums.fitted().root)
    head.fitted.fill_(True)
    return model
