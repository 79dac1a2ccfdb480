"""Drop-in modules with random attention weights."""

from bayesattn.nn.additive import AdditiveAttention
from bayesattn.nn.graph import GraphAttention, edge_weights
from bayesattn.nn.multihead import MultiheadAttention

__all__ = ["AdditiveAttention", "GraphAttention", "MultiheadAttention", "edge_weights"]
