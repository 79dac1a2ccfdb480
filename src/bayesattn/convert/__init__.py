"""An existing model made Bayesian, in place, and back."""

from bayesattn.convert.conversion import convert, revert
from bayesattn.convert.summary import AttentionLayer, Summary, summary
from bayesattn.convert.supported import Architecture, supported

__all__ = ["Architecture", "AttentionLayer", "Summary", "convert", "revert", "summary", "supported"]
