"""The graph attention network (Veličković et al. 2018), made of PyTorch Geometric's layers."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.support import checks
from bayesattn.support.annotations import Float, Int, Shaped


class GAT(nn.Module):
    """Two layers of `GATConv`: `heads` heads of `hidden` features side by side, ELU, then the mean of `output_heads` heads.

    Dropout on the input of each layer and on its attention weights. Features may be compressed sparse rows: the first layer, which
    is most of the work on bags of words, then costs what the nonzero ones cost. Self-loops are expected in `edges`.

    >>> import torch
    >>> GAT(5, 3)(torch.randn(4, 5), torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3]])).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        features: int,
        classes: int,
        hidden: int = 8,
        heads: int = 8,
        output_heads: int = 1,
        dropout: float = 0.6,
    ):
        super().__init__()
        try:
            from torch_geometric.nn import GATConv

            from bayesattn.experiments.models.sparse_linear import SparseLinear
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "GAT is made of PyTorch Geometric's layers: pip install 'bayesattn[graphs]'."
            ) from None
        for name, size in (("hidden", hidden), ("heads", heads), ("output_heads", output_heads)):
            checks.whole(name, size)
        checks.fraction("dropout", dropout)
        self.first = GATConv(features, hidden, heads, dropout=dropout, add_self_loops=False)
        self.first.lin = SparseLinear(features, heads * hidden, dropout)
        self.dropout_of_hidden = nn.Dropout(dropout)
        self.second = GATConv(
            heads * hidden, classes, output_heads, concat=False, dropout=dropout, add_self_loops=False
        )

    def forward(
        self, features: Shaped[Tensor, "nodes features"], edges: Int[Tensor, "2 edges"]
    ) -> Float[Tensor, "nodes classes"]:
        hidden = F.elu(self.first(features, edges))
        return self.second(self.dropout_of_hidden(hidden), edges)
