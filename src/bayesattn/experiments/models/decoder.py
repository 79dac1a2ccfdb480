"""The decoder of translation: an LSTM with input feeding and one MLP attention, its weights drawn from any posterior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesattn.experiments.models.stepwise import record_steps, step_weights
from bayesattn.posteriors import Posterior
from bayesattn.support.annotations import Bool, Float

State = tuple[Tensor, ...]
"""The decoder's (hidden, cell) of each layer, and the context that is fed to its next step."""


@dataclass(frozen=True)
class Source:
    """An encoded source."""

    memory: Float[Tensor, "batch source features"]
    keys: Float[Tensor, "batch source attention"]
    mask: Bool[Tensor, "batch source"]

    def repeat(self, copies: int) -> Source:
        """Every example that many times, copies adjacent."""
        return Source(*(tensor.repeat_interleave(copies, 0) for tensor in (self.memory, self.keys, self.mask)))


@dataclass(frozen=True)
class Decoded:
    """What the decoder computed at every target position."""

    queries: Float[Tensor, "batch target query"]
    scores: Float[Tensor, "batch target source"]
    contexts: Float[Tensor, "batch target features"]


class Decoder(nn.Module):
    """LSTM whose input is the word before and the context before; MLP attention v · tanh(W_q query + W_c memory), no biases.

    The attention of its own recurrence is that of `posterior`. Latent alignments feed the soft context back, as the
    reference does: their recurrence is plain softmax attention, and the objective sees all target positions at once.
    """

    def __init__(
        self,
        embedding_dim: int,
        memory_dim: int,
        hidden_dim: int,
        attention_dim: int,
        layers: int,
        dropout: float,
        posterior: Posterior,
    ):
        super().__init__()
        inputs = [embedding_dim + memory_dim, *[hidden_dim] * (layers - 1)]
        self.cells = nn.ModuleList(nn.LSTMCell(size, hidden_dim) for size in inputs)
        self.hidden_dim = hidden_dim
        self.memory_dim = memory_dim
        self.query_projection = nn.Linear(hidden_dim, attention_dim, bias=False)
        self.key_projection = nn.Linear(memory_dim, attention_dim, bias=False)
        self.score = nn.Linear(attention_dim, 1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.posterior = posterior.bind(num_heads=1, head_dim=attention_dim)

    def start(self, memory: Float[Tensor, "batch source features"]) -> State:
        """Zeros."""
        batch = memory.shape[0]
        zeros = memory.new_zeros(batch, self.hidden_dim)
        return (*[zeros] * (2 * len(self.cells)), memory.new_zeros(batch, self.memory_dim))

    def step(
        self, word: Float[Tensor, "batch embedding"], state: State, source: Source, k_max: int | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """One position: query [batch, query], scores [batch, source], and the new state, whose last is the context."""
        hidden = torch.cat([word, state[-1]], -1)
        new: list[Tensor] = []
        for layer, cell in enumerate(self.cells):
            hidden, memory_cell = cell(hidden if layer == 0 else self.dropout(hidden), state[2 * layer : 2 * layer + 2])
            new += [hidden, memory_cell]
        scores = self.score(torch.tanh(source.keys + self.query_projection(hidden).unsqueeze(1))).squeeze(-1)
        return hidden, scores, (*new, self._context(scores, source, k_max))

    def forward(
        self, words: Float[Tensor, "batch target embedding"], source: Source, k_max: int | None = None
    ) -> Decoded:
        """All positions, given the words before each."""
        state = self.start(source.memory)
        queries, scores, contexts = [], [], []
        for word in words.unbind(1):
            query, score, state = self.step(word, state, source, k_max)
            queries.append(query)
            scores.append(score)
            contexts.append(state[-1])
        return Decoded(torch.stack(queries, 1), torch.stack(scores, 1), torch.stack(contexts, 1))

    def record_kl(self, decoded: Decoded, source: Source, target_mask: Bool[Tensor, "batch target"]) -> None:
        """Record the KL of all positions as one term of the posterior."""
        record_steps(self.posterior, decoded.scores, source.keys, source.mask, target_mask)

    def _context(self, scores: Tensor, source: Source, k_max: int | None) -> Tensor:
        """The memory averaged with this step's weights."""
        weights = step_weights(self.posterior, scores, source.mask, k_max)
        return (weights.to(source.memory.dtype).unsqueeze(1) @ source.memory).squeeze(1)
