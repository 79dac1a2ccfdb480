"""A question as vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.alignment.recurrent import lstm_states
from bayesattn.support import checks
from bayesattn.support.annotations import Float, Shaped


class QuestionEncoder(nn.Module):
    """Word numbers → embeddings → LSTM → its state at every word. Padding comes last.

    >>> import torch
    >>> states, last = QuestionEncoder(10, 4, 6)(torch.tensor([[3, 4, 0], [5, 0, 0]]))
    >>> states.shape, bool((last[1] == states[1, 0]).all())
    (torch.Size([2, 3, 6]), True)
    """

    def __init__(self, words: int, embedding_dim: int, hidden_dim: int, pad: int = 0):
        super().__init__()
        for name, size in (("words", words), ("embedding_dim", embedding_dim), ("hidden_dim", hidden_dim)):
            checks.whole(name, size)
        self.pad = pad
        self.embedding = nn.Embedding(words, embedding_dim, padding_idx=pad)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, batch_first=True)

    def forward(
        self, words: Shaped[Tensor, "batch length"]
    ) -> tuple[Float[Tensor, "batch length hidden"], Float[Tensor, "batch hidden"]]:
        """The state at every word, and that at the last one."""
        states = lstm_states(self.lstm, self.embedding(words))
        last = ((words != self.pad).sum(1) - 1).clamp_min(0)
        return states, states[torch.arange(len(words), device=words.device), last]
