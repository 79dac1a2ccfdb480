"""What a network predicts before it has seen data: its entropy under a prior of its weights (the thesis's figure 3.14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesattn import checks, metrics
from bayesattn.annotations import Float
from bayesattn.weights import WeightPrior
from bayesattn.weights.network import ParameterVector
from bayesattn.weights.priors import Priors, prior_of
from bayesattn.weights.selection import Where


@dataclass(frozen=True)
class PriorPredictive:
    """Entropies in nats, means over the inputs."""

    entropy: float
    """Of the prior predictive distribution: the mean of all drawn networks' probabilities."""
    expected_entropy: float
    """Of single networks: near 0 means that a drawn network is sure of everything, whatever it sees."""


def draw_from_prior(
    model: nn.Module,
    inputs: Tensor,
    prior: Priors,
    samples: int = 32,
    *,
    where: Where = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "samples batch *event"]:
    """The logits of `samples` networks whose chosen weights are drawn from the prior; layer norms keep theirs.

    A layer norm whose scale is drawn around 0 would be another network: the papers' priors are of weights and biases.
    """
    checks.whole("samples", samples)
    norms = {name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)}
    parameters = ParameterVector(model, where)
    drawn_names = [name for name in parameters.shapes if name.rpartition(".")[0] not in norms]
    outputs = []
    with torch.no_grad():
        for _ in range(samples):
            tensors = {name: prior_of(prior, name).sample(model.get_parameter(name), generator) for name in drawn_names}
            with parameters.in_place(model, tensors):
                outputs.append(model(inputs))
    return torch.stack(outputs)


def prior_predictive(logits: Float[Tensor, "samples batch *event"]) -> PriorPredictive:
    """The entropies of sampled logits, classes last."""
    probabilities = logits.softmax(-1)
    return PriorPredictive(
        metrics.predictive_entropy(probabilities).mean().item(), metrics.expected_entropy(probabilities).mean().item()
    )


def over_scales(
    model: nn.Module, inputs: Tensor, families: Sequence[str], scales: Sequence[float], samples: int = 32, seed: int = 0
) -> dict[str, list[PriorPredictive]]:
    """Family → the prior predictive at each scale; a Student-t has 5 degrees of freedom. All share their seed."""
    found: dict[str, list[PriorPredictive]] = {}
    for family in families:
        priors = [WeightPrior(family, scale, 5.0 if family == "student" else None) for scale in scales]
        found[family] = [
            prior_predictive(
                draw_from_prior(model, inputs, prior, samples, generator=torch.Generator().manual_seed(seed))
            )
            for prior in priors
        ]
    return found
