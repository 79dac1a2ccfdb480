"""An existing model made Bayesian, in place, and back."""

from bayesattn.convert.conversion import convert, revert
from bayesattn.convert.noise import NoiseFit, fit_noise
from bayesattn.convert.summary import AttentionLayer, Summary, summary
from bayesattn.convert.supported import Architecture, supported

__all__ = [
    "Architecture",
    "AttentionLayer",
    "NoiseFit",
    "Summary",
    "convert",
    "fit_noise",
    "revert",
    "summary",
    "supported",
]
