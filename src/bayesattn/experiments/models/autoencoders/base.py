"""A transformer that writes a text again from what a bottleneck leaves of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.nvib import Mixture
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Int


@dataclass(frozen=True)
class Vectors:
    """What ordinary attention reads of a text: vectors, those with `mask` False not there."""

    values: Float[Tensor, "batch components dim"]
    mask: Bool[Tensor, "batch components"]

    @property
    def kept(self) -> Bool[Tensor, "batch components"]:
        """Which vectors are there."""
        return self.mask

    def interpolate(self, other: Vectors, tau: float) -> Vectors:
        """(1 - τ) of these and τ of the others, position by position; where one text has ended, its vector is 0."""
        length = max(self.values.shape[1], other.values.shape[1])
        parts = []
        for vectors, share in ((self, 1.0 - tau), (other, tau)):
            missing = length - vectors.values.shape[1]
            mask = F.pad(vectors.mask, (0, missing)) & (share > 0)
            values = F.pad(vectors.values, (0, 0, 0, missing))
            parts.append((share * values.masked_fill(~mask.unsqueeze(-1), 0.0), mask))
        (one, in_one), (two, in_two) = parts
        return Vectors(one + two, in_one | in_two)


Memory = Vectors | Mixture
"""What the decoder reads. Both kinds have `mask`, `kept` and `interpolate`."""


class Bottleneck(nn.Module, ABC):
    """What stands between encoder and decoder. It records its KL; in training and inside `sampling()` it draws."""

    @abstractmethod
    def forward(self, vectors: Float[Tensor, "batch tokens dim"], padding: Bool[Tensor, "batch tokens"]) -> Memory:
        """What is left of the encoder's vectors; True = padding."""

    @abstractmethod
    def sample_prior(self, lengths: Int[Tensor, " batch"], generator: torch.Generator | None = None) -> Memory:
        """What texts of these lengths might leave, drawn from the prior."""

    def attention(self, dim: int, heads: int, dropout: float) -> nn.MultiheadAttention:
        """The decoder's attention to the memory."""
        return nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)


class Autoencoder(nn.Module):
    """Tokens → transformer encoder → bottleneck → transformer decoder → the same tokens.

    As in Henderson and Fehr 2023: layer norm last, sinusoidal positions, embeddings times sqrt(dim), one embedding for encoder and
    decoder, an output layer of its own. The encoder reads a text and its end, the decoder the start and the text.

    Args:
        vocabulary: number of tokens.
        max_len: most tokens of a text, its end among them.
        bottleneck: one of the other files of this package.
        dim, depth, heads, feedforward, dropout: of the transformer; `feedforward` is 4 dim by default.
        pad, start, end: special tokens. Padding comes last.
        words: a number that tells which words the tokens stand for; it is kept with the weights.

    >>> import torch
    >>> from bayesattn.experiments.models.autoencoders.no_bottleneck import NoBottleneck
    >>> model = Autoencoder(20, 8, NoBottleneck(), dim=16)
    >>> tokens = torch.tensor([[5, 6, 7, 3], [9, 3, 0, 0]])
    >>> nll = model(tokens)
    >>> nll.shape, bool((nll[1, 2:] == 0).all())
    (torch.Size([2, 4]), True)
    """

    positions: Tensor
    words: Tensor

    def __init__(
        self,
        vocabulary: int,
        max_len: int,
        bottleneck: Bottleneck,
        *,
        dim: int = 256,
        depth: int = 1,
        heads: int = 1,
        feedforward: int | None = None,
        dropout: float = 0.0,
        pad: int = 0,
        start: int = 2,
        end: int = 3,
        words: int = 0,
    ):
        super().__init__()
        sizes = {"vocabulary": vocabulary, "max_len": max_len, "dim": dim, "depth": depth, "heads": heads}
        for name, size in sizes.items():
            checks.whole(name, size)
        checks.fraction("dropout", dropout)
        self.max_len, self.dim, self.heads, self.dropout_p = max_len, dim, heads, dropout
        self.pad, self.start, self.end = pad, start, end
        self.embedding = nn.Embedding(vocabulary, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", sinusoids(max_len, dim), persistent=False)
        self.register_buffer("words", torch.tensor(words))
        width = 4 * dim if feedforward is None else checks.whole("feedforward", feedforward)
        encoder_layer = nn.TransformerEncoderLayer(dim, heads, width, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder_layer, depth, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(dim, heads, width, dropout, batch_first=True), depth
        )
        self.output = nn.Linear(dim, vocabulary)
        self.set_bottleneck(bottleneck)

    def set_bottleneck(self, bottleneck: Bottleneck) -> None:
        """Put this bottleneck, and fresh attention that reads it, between encoder and decoder."""
        self.bottleneck = bottleneck
        for layer in self.decoder.layers:
            layer.multihead_attn = bottleneck.attention(self.dim, self.heads, self.dropout_p)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length"]:
        """The negative log-likelihood of every token, given the memory and those before it; 0 at padding."""
        hidden = self.decode(self.encode(tokens), F.pad(tokens[:, :-1], (1, 0), value=self.start))
        there = tokens != self.pad
        nll = F.cross_entropy(self.output(hidden[there]), tokens[there], reduction="none")
        return torch.zeros_like(hidden[..., 0], dtype=nll.dtype).masked_scatter(there, nll)

    def encode(self, tokens: Int[Tensor, "batch length"]) -> Memory:
        """What the bottleneck leaves of texts with their ends."""
        padding = tokens == self.pad
        return self.bottleneck(self.encoder(self._embedded(tokens), src_key_padding_mask=padding), padding)

    def decode(self, memory: Memory, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length dim"]:
        """The decoder's vectors after each of `tokens`, which begin with the start; the output layer makes logits of them."""
        length = tokens.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        embedded = self._embedded(tokens)
        if isinstance(memory, Mixture):  # it has its padding with it, and denoising attention reads it as it is
            return self.decoder(embedded, memory, tgt_mask=future)
        return self.decoder(embedded, memory.values, tgt_mask=future, memory_key_padding_mask=~memory.mask)

    @torch.no_grad()
    def write(self, memory: Memory, max_len: int | None = None) -> Int[Tensor, "batch length"]:
        """The text of each memory, token by token, each the most probable; padding after its end."""
        batch = memory.mask.shape[0]
        tokens = torch.full((batch, 1), self.start, device=memory.mask.device)
        ended = torch.zeros(batch, dtype=torch.bool, device=tokens.device)
        never = torch.tensor([self.pad, self.start], device=tokens.device)
        for _ in range(self.max_len if max_len is None else checks.whole("max_len", max_len)):
            logits = self.output(self.decode(memory, tokens)[:, -1]).index_fill(1, never, -math.inf)
            chosen = logits.argmax(-1).masked_fill(ended, self.pad)
            tokens = torch.cat([tokens, chosen.unsqueeze(1)], 1)
            ended = ended | (chosen == self.end)
            if ended.all():
                break
        return tokens[:, 1:]

    def _embedded(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.max_len:
            raise ValueError(f"A text of {length} tokens is longer than max_len={self.max_len}.")
        return self.dropout(self.embedding(tokens) * math.sqrt(self.dim) + self.positions[:length])


def sinusoids(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """Sine and cosine of the position at wavelengths from 2π to 20000π (Vaswani et al. 2017)."""
    frequencies = torch.exp(torch.arange(0, dim, 2) * (-math.log(1e4) / dim))
    angles = torch.arange(length).unsqueeze(1) * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :dim]
