"""Attention over the neighbours of a node, with random weights; sparse: memory is linear in the edges."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.attention.drawing import check_posterior, draw_weights
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors import Posterior, Softmax
from bayesattn.posteriors.rows import EdgeRows
from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.support.annotations import Float, Int


def edge_weights(
    scores: Float[Tensor, "edges heads"],
    edge_index: Int[Tensor, "2 edges"],
    keys: Float[Tensor, "nodes heads features"],
    posterior: Posterior,
    *,
    num_queries: int,
    graph_of_query: Int[Tensor, " queries"] | None = None,
    num_graphs: int = 1,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "edges heads"]:
    """The weight of every edge: for each target node they sum to one over its incoming edges.

    Args:
        scores: one for each edge and head.
        edge_index: row 0 holds the sources (the keys), row 1 the targets (the queries), as in PyTorch Geometric.
        keys: the features of the source nodes: what a contextual prior sees.
        posterior: the distribution of the weights. Its KL goes to the open `record()`, one value for each graph.
        num_queries: number of target nodes.
        graph_of_query: the graph of each target node, where a batch holds several; without it all are one example.
        num_graphs: how many graphs there are then.
        generator: where the noise comes from.

    >>> import torch, bayesattn as ba
    >>> edges = torch.tensor([[0, 1, 2, 1], [0, 0, 0, 1]])
    >>> weights = ba.nn.edge_weights(torch.randn(4, 2), edges, torch.randn(3, 2, 5), ba.Weibull(k=5.0), num_queries=3)
    >>> bool(torch.allclose(weights[:3].sum(0), torch.ones(2)))
    True
    """
    check_posterior(posterior)
    key, query = edge_index[0], edge_index[1]
    rows = EdgeRows(query, key, num_queries, scores.shape[1], graph_of_query, num_graphs)
    noise = modes.current_generator(generator)
    return draw_weights(to_compute(scores), keys, rows, posterior, noise).to(scores.dtype)


class GraphAttention(nn.Module):
    """The graph attention layer of GAT (Veličković et al. 2018) with any posterior; needs torch alone.

        score_ij = LeakyReLU(a_target · W x_i + a_source · W x_j),    out_i = Σ_j weight_ij W x_j  + bias

    over the edges j → i. The projected nodes W x_j are what a contextual prior sees, as in BAM.

    Args:
        in_features, out_features: features of a node, and of each head.
        num_heads: how many heads.
        posterior: distribution of the weights, `Softmax()` by default.
        concat: heads side by side (num_heads · out_features), or their mean.
        dropout: dropout of the normalised weights in training.
        negative_slope: of the LeakyReLU.

    >>> import torch, bayesattn as ba
    >>> layer = ba.nn.GraphAttention(8, 4, num_heads=2, posterior=ba.Weibull(k=5.0))
    >>> edges = torch.tensor([[0, 1, 2, 1], [0, 0, 0, 1]])
    >>> with ba.record() as latents:
    ...     output = layer(torch.randn(3, 8), edges)
    >>> output.shape, latents.local_kl.shape
    (torch.Size([3, 8]), torch.Size([1]))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_heads: int = 1,
        posterior: Posterior | None = None,
        *,
        concat: bool = True,
        dropout: float = 0.0,
        negative_slope: float = 0.2,
    ):
        super().__init__()
        for name, size in (("in_features", in_features), ("out_features", out_features), ("num_heads", num_heads)):
            checks.whole(name, size)
        self.num_heads = num_heads
        self.out_features = out_features
        self.concat = concat
        self.dropout = checks.fraction("dropout", dropout)
        self.negative_slope = negative_slope
        self.projection = nn.Linear(in_features, num_heads * out_features, bias=False)
        self.source = nn.Parameter(torch.empty(num_heads, out_features))
        self.target = nn.Parameter(torch.empty(num_heads, out_features))
        self.bias = nn.Parameter(torch.zeros(num_heads * out_features if concat else out_features))
        for weight in (self.projection.weight, self.source, self.target):
            nn.init.xavier_uniform_(weight)
        self.posterior = (posterior or Softmax()).bind(num_heads=num_heads, head_dim=out_features)

    def forward(
        self,
        x: Float[Tensor, "nodes in_features"],
        edge_index: Int[Tensor, "2 edges"],
        graph: Int[Tensor, " nodes"] | None = None,
        num_graphs: int = 1,
    ) -> Float[Tensor, "nodes out"]:
        """The new features of each node. A node attends to itself only where `edge_index` says so.

        `graph` gives the graph of each node where the batch holds `num_graphs` of them: the KL then has one value for each.
        """
        nodes = self.projection(x).view(-1, self.num_heads, self.out_features)
        of_source, of_target = (nodes * self.source).sum(-1), (nodes * self.target).sum(-1)
        scores = F.leaky_relu(of_source[edge_index[0]] + of_target[edge_index[1]], self.negative_slope)
        weights = edge_weights(
            scores,
            edge_index,
            nodes,
            self.posterior,
            num_queries=len(x),
            graph_of_query=graph,
            num_graphs=num_graphs,
        )
        weights = F.dropout(weights, self.dropout, self.training)
        messages = weights.unsqueeze(-1) * nodes[edge_index[0]]
        output = torch.zeros_like(nodes).index_add(0, edge_index[1], messages.to(nodes.dtype))
        return (output.flatten(1) if self.concat else output.mean(1)) + self.bias
