"""Inference networks: the posterior's scores of an alignment, from the source and the whole target."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.alignment.recurrent import BidirectionalLSTM
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float


class SequenceInference(nn.Module):
    """score_ji = (W h_j) · x_i, with h and x bidirectional LSTMs over target and source (translation).

    Target position j must hold y_j, the token that is to be explained, not the one before it.

    Args:
        source_dim, target_dim: features of source and target, such as their embeddings.
        hidden_dim: units of each LSTM in each direction.
        layers, dropout: of the LSTMs.

    >>> import torch
    >>> network = SequenceInference(8, 8, hidden_dim=16)
    >>> network(torch.randn(2, 5, 8), torch.randn(2, 7, 8)).shape
    torch.Size([2, 7, 5])
    """

    def __init__(self, source_dim: int, target_dim: int, hidden_dim: int, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        self.source = BidirectionalLSTM(source_dim, hidden_dim, layers, dropout)
        self.target = BidirectionalLSTM(target_dim, hidden_dim, layers, dropout)
        self.bilinear = nn.Linear(2 * hidden_dim, 2 * hidden_dim, bias=False)

    def forward(
        self,
        source: Float[Tensor, "batch source source_dim"],
        target: Float[Tensor, "batch target target_dim"],
        source_mask: Bool[Tensor, "batch source"] | None = None,
        target_mask: Bool[Tensor, "batch target"] | None = None,
    ) -> Float[Tensor, "batch target source"]:
        """Posterior scores. Masks are False for padding, which comes last."""
        states = self.bilinear(self.target(target, target_mask))
        return states @ self.source(source, source_mask).transpose(1, 2)


class SetInference(nn.Module):
    """score_ji = u · tanh(U_1 (x_i * relu(V_1 y_j)) + U_2 (query_j * relu(V_2 y_j))) over a set x, with no order (visual questions).

    Args:
        memory_dim: features of each x, such as an image's regions.
        query_dim: features of the query, such as the question.
        answer_dim: features of the answer y that is to be explained.
        hidden_dim: width of the tanh layer.

    >>> import torch
    >>> network = SetInference(memory_dim=12, query_dim=8, answer_dim=4, hidden_dim=16)
    >>> network(torch.randn(2, 36, 12), torch.randn(2, 1, 8), torch.randn(2, 1, 4)).shape
    torch.Size([2, 1, 36])
    """

    def __init__(self, memory_dim: int, query_dim: int, answer_dim: int, hidden_dim: int):
        super().__init__()
        sizes = {"memory_dim": memory_dim, "query_dim": query_dim, "answer_dim": answer_dim, "hidden_dim": hidden_dim}
        for name, size in sizes.items():
            checks.whole(name, size)
        self.memory_gate = nn.Linear(answer_dim, memory_dim)
        self.query_gate = nn.Linear(answer_dim, query_dim)
        self.memory_projection = nn.Linear(memory_dim, hidden_dim)
        self.query_projection = nn.Linear(query_dim, hidden_dim, bias=False)
        self.score = nn.Linear(hidden_dim, 1, bias=False)

    def forward(
        self,
        memory: Float[Tensor, "batch source memory_dim"],
        query: Float[Tensor, "batch target query_dim"],
        answer: Float[Tensor, "batch target answer_dim"],
    ) -> Float[Tensor, "batch target source"]:
        """Posterior scores."""
        gated_memory = memory.unsqueeze(1) * self.memory_gate(answer).relu().unsqueeze(2)
        gated_query = query * self.query_gate(answer).relu()
        hidden = self.memory_projection(gated_memory) + self.query_projection(gated_query).unsqueeze(2)
        return self.score(torch.tanh(hidden)).squeeze(-1)
