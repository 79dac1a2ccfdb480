"""Name → how to make a task's model Bayesian, train it, predict with it."""

from bayesattn.methods import (
    baselines,
    bottlenecks,
    latent_alignment,
    variational_attention,
    weight_space,
)
from bayesattn.methods.base import Method
from bayesattn.methods.registered import METHODS

__all__ = [
    "METHODS",
    "Method",
    "baselines",
    "bottlenecks",
    "latent_alignment",
    "variational_attention",
    "weight_space",
]
