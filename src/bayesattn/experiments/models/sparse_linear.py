"""A linear layer whose input may be a fixed sparse matrix, such as the bags of words of a graph's nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear


class SparseLinear(Linear):
    """PyTorch Geometric's `Linear` (its weights, its start) that also takes compressed sparse rows, with dropout on the input.

    The product costs what the nonzero entries cost, forwards and backwards: torch's own backward pass of a sparse product sorts the
    entries anew in every step, here their order is kept for as long as the same matrix is given.
    """

    def __init__(self, in_features: int, out_features: int, dropout: float = 0.0):
        super().__init__(in_features, out_features, bias=False, weight_initializer="glorot")
        self.dropout_of_input = nn.Dropout(dropout)
        self._known: tuple[Tensor, _Pattern] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """dropout(x) W'."""
        if x.layout is not torch.sparse_csr:
            return super().forward(self.dropout_of_input(x))
        if self._known is None or self._known[0] is not x:
            self._known = (x, _Pattern.of(x))
        return _Product.apply(self.dropout_of_input(x.values()), self.weight, self._known[1])  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class _Pattern:
    """Where the entries of a matrix are, by rows and by columns."""

    shape: torch.Size
    rows: Tensor
    columns: Tensor
    transposed_rows: Tensor
    transposed_columns: Tensor
    order: Tensor
    """The entry that stands at each place of the transposed matrix."""

    @classmethod
    def of(cls, x: Tensor) -> _Pattern:
        rows, columns = x.crow_indices(), x.col_indices()
        row_of_entry = torch.repeat_interleave(torch.arange(x.shape[0], device=x.device), rows.diff())
        order = torch.argsort(columns, stable=True)
        counts = torch.bincount(columns, minlength=x.shape[1])
        transposed_rows = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return cls(x.shape, rows, columns, transposed_rows, row_of_entry[order], order)

    def matrix(self, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(self.rows, self.columns, values, self.shape, check_invariants=False)

    def transposed(self, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(
            self.transposed_rows,
            self.transposed_columns,
            values[self.order],
            self.shape[::-1],
            check_invariants=False,
        )


class _Product(torch.autograd.Function):
    """x W' with a gradient for W alone."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, pattern: _Pattern) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(values)
        return pattern.matrix(values) @ weight.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        (values,) = ctx.saved_tensors
        return None, (ctx.pattern.transposed(values) @ gradients[0]).t(), None
