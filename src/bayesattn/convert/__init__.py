"""An existing model made Bayesian, in place, and back."""

from bayesattn.convert.conversion import convert, revert

__all__ = ["convert", "revert"]
