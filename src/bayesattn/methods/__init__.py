"""Name → how to make a task's model Bayesian, train it, predict with it."""

from bayesattn.methods import attention as _attention
from bayesattn.methods import baselines as _baselines
from bayesattn.methods.base import Method
from bayesattn.methods.registered import METHODS

__all__ = ["METHODS", "Method"]
