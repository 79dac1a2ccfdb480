"""What a network predicts before it has seen data: its entropy under a prior of its weights (the thesis's figure 3.14)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.numerics.counter_noise import Noise
from bayesattn.numerics.draws import approximate_log_gamma_rsample, log_gamma_rsample
from bayesattn.posteriors import Posterior
from bayesattn.posteriors.rows import Rows
from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float
from bayesattn.weight_space import WeightPrior
from bayesattn.weight_space.network import ParameterVector
from bayesattn.weight_space.priors import Priors, prior_of
from bayesattn.weight_space.selection import Where


@dataclass(frozen=True)
class PriorPredictive:
    """Entropies in nats, means over the inputs."""

    entropy: float
    """Of the prior predictive distribution: the mean of all drawn networks' probabilities."""
    expected_entropy: float
    """Of single networks: near 0 means that a drawn network is sure of everything, whatever it sees."""


class DirichletPrior(Posterior):
    """The prior of Dirichlet attention, Dirichlet(p, ..., p) over the keys of a row, as attention weights: they do not see the scores."""

    def __init__(self, concentration: float, approximate: bool = False):
        super().__init__()
        self.concentration = checks.positive("concentration", concentration)
        self.approximate = approximate

    def log_sample(self, scores: Tensor, rows: Rows, generator: Noise = None) -> Tensor:
        draw = approximate_log_gamma_rsample if self.approximate else log_gamma_rsample
        return draw(torch.full_like(scores, math.log(self.concentration)), generator)

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        return rows.total_of_pairs(torch.zeros_like(scores))


def draw_networks(
    build: Callable[[], nn.Module], inputs: Tensor, samples: int = 32, seed: int = 0
) -> Float[Tensor, "samples batch *event"]:
    """The logits of `samples` networks with the weights that they start with, each its own; attention weights are drawn."""
    checks.whole("samples", samples)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), modes.sampling():
        torch.manual_seed(seed)
        outputs = [build().eval()(inputs) for _ in range(samples)]
    return torch.stack(outputs)


def draw_from_prior(
    model: nn.Module,
    inputs: Tensor,
    prior: Priors,
    samples: int = 32,
    *,
    where: Where = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "samples batch *event"]:
    """The logits of `samples` networks whose chosen weights are drawn from the prior; their attention weights are drawn too.

    Layer norms keep their weights, since one whose scale is drawn around 0 would be another network, and so do the posteriors
    of attention weights: these are as they start.
    """
    checks.whole("samples", samples)
    kept = {
        name
        for root, module in model.named_modules()
        if isinstance(module, nn.LayerNorm | Posterior)
        for name, _ in module.named_parameters(root)
    }
    parameters = ParameterVector(model, where)
    drawn_names = [name for name in parameters.shapes if name not in kept]
    outputs = []
    with torch.no_grad(), modes.sampling(generator):
        for _ in range(samples):
            tensors = {name: prior_of(prior, name).sample(model.get_parameter(name), generator) for name in drawn_names}
            outputs.append(parameters.model_with(model, tensors)(inputs))
    return torch.stack(outputs)


def prior_predictive(
    logits: Float[Tensor, "samples batch *event"], counted: Bool[Tensor, " batch *positions"] | None = None
) -> PriorPredictive:
    """The entropies of sampled logits, classes last; of the `counted` positions alone, if given."""
    probabilities = logits.softmax(-1)
    whole, single = metrics.predictive_entropy(probabilities), metrics.expected_entropy(probabilities)
    if counted is not None:
        whole, single = whole[counted], single[counted]
    return PriorPredictive(whole.mean().item(), single.mean().item())


@dataclass(frozen=True)
class Entropies:
    """Entropies in nats of every input."""

    predictive: Float[Tensor, " n"]
    """Of the mean probabilities of a few networks, as a method predicts."""
    single: Float[Tensor, " m"]
    """Of each network's."""


def entropies(
    logits: Float[Tensor, "samples batch *event"],
    together: int,
    counted: Bool[Tensor, " batch *positions"] | None = None,
) -> Entropies:
    """The entropies of sampled logits, classes last, with `together` networks to each prediction."""
    if len(logits) % checks.whole("together", together):
        raise ValueError(f"{len(logits)} networks cannot be divided among predictions of together={together}.")
    probabilities = logits.softmax(-1)
    single = metrics.entropy(probabilities)
    predictive = torch.stack([metrics.predictive_entropy(group) for group in probabilities.split(together)])
    if counted is not None:
        single, predictive = single[:, counted], predictive[:, counted]
    return Entropies(predictive.flatten(), single.flatten())


def over_scales(
    model: nn.Module,
    inputs: Tensor,
    families: Sequence[str],
    scales: Sequence[float],
    samples: int = 32,
    seed: int = 0,
    counted: Bool[Tensor, " batch *positions"] | None = None,
) -> dict[str, list[PriorPredictive]]:
    """Family → the prior predictive at each scale; a Student-t has 5 degrees of freedom. All share their seed."""
    found: dict[str, list[PriorPredictive]] = {}
    for family in families:
        priors = [WeightPrior(family, scale, 5.0 if family == "student" else None) for scale in scales]
        found[family] = [
            prior_predictive(
                draw_from_prior(model, inputs, prior, samples, generator=torch.Generator().manual_seed(seed)), counted
            )
            for prior in priors
        ]
    return found
