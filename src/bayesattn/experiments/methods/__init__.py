"""Name → how to make a task's model Bayesian, train it, predict with it."""

from bayesattn.experiments.methods import (
    baselines,
    bottlenecks,
    last_layer,
    latent_alignment,
    members,
    noise_after,
    unstable,
    variational_attention,
    weight_space,
)
from bayesattn.experiments.methods.base import Method
from bayesattn.experiments.methods.registered import METHODS

__all__ = [
    "METHODS",
    "Method",
    "baselines",
    "bottlenecks",
    "last_layer",
    "latent_alignment",
    "members",
    "noise_after",
    "unstable",
    "variational_attention",
    "weight_space",
]
