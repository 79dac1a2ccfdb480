"""What a model attends to, and how certain it is of that: samples of the weights of every layer, beside their prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.prediction.calling import call, tensors_in
from bayesattn.scopes.modes import sampling
from bayesattn.scopes.watching import watch
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.support.replica import in_eval_mode


@dataclass(frozen=True)
class AttentionWeights:
    """One layer's weights: [batch, heads, query, key], on a graph [edges, heads]."""

    samples: Float[Tensor, "samples ..."]
    """As drawn, one after the other. The layers of sample n belong to one pass."""
    point: Float[Tensor, "..."]
    """The point estimate of eval mode."""
    prior: Float[Tensor, "..."]
    """What the prior expects: the weights of its means."""

    @property
    def mean(self) -> Float[Tensor, "..."]:
        """Mean over the samples."""
        return self.samples.mean(0)

    @property
    def deviation(self) -> Float[Tensor, "..."]:
        """Standard deviation over the samples."""
        return self.samples.std(0, correction=0)


def attention_weights(
    model: nn.Module, inputs: Any, samples: int = 32, *, generator: torch.Generator | None = None
) -> dict[str, AttentionWeights]:
    """Sampled weights of every Bayesian attention layer of `model`, by the layer's name, in the order in which they run.

    The model runs in eval mode, `samples` times and once for the point estimate. A layer that runs several times in one pass
    has each of its runs, numbered: "decoder.attention #2".

    Args:
        model: converted by `ba.convert`, or made of layers of `ba.nn`.
        inputs: as in `ba.predict`.
        samples: how many.
        generator: where the noise comes from.

    >>> import torch, bayesattn as ba
    >>> encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, batch_first=True), 1)
    >>> model = ba.convert(encoder, ba.Weibull(k=5.0))
    >>> layers = ba.attention_weights(model, torch.randn(3, 7, 16), samples=8)
    >>> for name, weights in layers.items():
    ...     print(name, tuple(weights.mean.shape), bool((weights.deviation > 0).any()))
    layers.0.self_attn (3, 2, 7, 7) True
    """
    checks.whole("samples", samples)
    tensors_in(inputs)
    running = in_eval_mode(model)
    names = {id(module): name for name, module in running.named_modules()}
    with torch.no_grad(), watch() as points:
        call(running, inputs)
    drawn = []
    with torch.no_grad(), sampling(generator):
        for _ in range(samples):
            with watch() as seen:
                call(running, inputs)
            drawn.append(seen)
    if not points:
        raise ValueError(
            f"{type(model).__name__} has no Bayesian attention: make it so with ba.convert, or build it of layers of ba.nn."
        )
    if any(len(seen) != len(points) for seen in drawn):
        raise ValueError(
            "The model did not run the same attention layers in every pass: look at one example at a time."
        )
    layers: dict[str, AttentionWeights] = {}
    for place, point in enumerate(points):
        name = _layer_name(names[id(point.source)])
        runs = sum(_layer_name(names[id(other.source)]) == name for other in points[:place])
        layers[name if runs == 0 else f"{name} #{runs + 1}"] = AttentionWeights(
            torch.stack([seen[place].weights for seen in drawn]), point.weights, point.prior
        )
    return layers


def _layer_name(posterior: str) -> str:
    """The layer that a posterior belongs to: "layers.0.self_attn.posterior" → "layers.0.self_attn"."""
    return posterior.rpartition(".")[0] or posterior
