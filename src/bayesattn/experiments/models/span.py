"""A pretrained Hugging Face encoder with a head that marks where an answer begins and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from bayesattn.support.annotations import Float, Int


class SpanModel(nn.Module):
    """Token ids, mask and token types, [batch, 3, length], → logits of the first and of the last token, [batch, 2, length].

    Padding cannot be chosen. The encoder is loaded from `path`; the head is two outputs for each token, after dropout.
    """

    def __init__(self, path: str | Path, dropout: float, head_dropout: float):
        super().__init__()
        self.encoder: Any = transformers.AutoModel.from_pretrained(
            path, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )
        self.dropout = nn.Dropout(head_dropout)
        self.head = nn.Linear(self.encoder.config.hidden_size, 2)

    def forward(self, inputs: Int[Tensor, "batch 3 length"]) -> Float[Tensor, "batch 2 length"]:
        ids, mask, types = inputs.unbind(1)
        hidden = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        logits = self.head(self.dropout(hidden)).transpose(1, 2)
        return logits.masked_fill(mask.unsqueeze(1) == 0, torch.finfo(logits.dtype).min)
