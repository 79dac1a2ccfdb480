"""Translation as in Deng et al. 2018: bidirectional LSTM encoder, LSTM decoder with input feeding, one MLP attention."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn import checks, latents
from bayesattn.alignment import (
    BidirectionalLSTM,
    Mixture,
    Objective,
    SequenceInference,
    Soft,
    keep_largest,
    log_weights,
)
from bayesattn.alignment.mixture import LogLikelihood
from bayesattn.annotations import Bool, Float, Shaped
from bayesattn.models.beam import Hypotheses, beam_search
from bayesattn.posteriors import Posterior, Softmax
from bayesattn.precision import to_compute
from bayesattn.rows import DenseRows

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
        if not latents.kl_is_wanted():
            return
        batch, target, length = decoded.scores.shape
        rows = DenseRows((batch, 1, target, length), source.mask[:, None, None, :], target_mask)
        scores = rows.fill_blocked(to_compute(decoded.scores).unsqueeze(1), 0.0)
        one = scores.new_ones(())
        tokens = rows.total_of_rows(one)
        latents.add_local(
            self.posterior.kl(scores, source.keys.unsqueeze(1), rows),
            elements=rows.total_of_pairs(one),
            rows=tokens,
            tokens=tokens,
            source=self.posterior,
        )

    def _context(self, scores: Tensor, source: Source, k_max: int | None) -> Tensor:
        """The memory averaged with this step's weights."""
        rows = DenseRows((scores.shape[0], 1, 1, scores.shape[1]), source.mask[:, None, None, :])
        pairs = rows.fill_blocked(to_compute(scores)[:, None, None, :], 0.0)
        if self.posterior.samples:
            pairs = self.posterior.log_sample(pairs, rows, latents.current_generator())
        else:
            pairs = self.posterior.log_mean(pairs)
        if k_max is not None:
            pairs = keep_largest(log_weights(pairs[:, 0], source.mask), k_max).unsqueeze(1)
        return (rows.softmax(pairs)[:, 0].to(source.memory.dtype) @ source.memory).squeeze(1)


class Seq2Seq(nn.Module):
    """Source tokens → target tokens, with any objective of latent alignment or any posterior of attention weights.

        query_j = LSTM([embedding of y_{j-1}; context_{j-1}])
        p(y_j | context) = softmax(W tanh(W_1 query_j + W_2 context + b))

    Args:
        source_words, target_words: sizes of the two vocabularies.
        attention: an objective of `ba.alignment` (`Soft()` by default), which gets an inference network if it needs one; or a
            posterior such as `ba.Weibull(...)`, whose drawn context is used and fed back. It may be replaced between
            epochs: `model.objective = ...`.
        embedding_dim: of source and target words.
        encoder_dim: units of the encoder's LSTM in each direction.
        decoder_dim, attention_dim: units of the decoder's LSTM, width of the attention's tanh layer.
        inference_dim: units of the inference network's LSTMs in each direction.
        layers: of every LSTM.
        dropout: of embeddings, between LSTM layers and before the output layer.
        pad, bos, eos: special tokens. Padding comes last.

    The paper's sizes: embedding_dim=512, encoder_dim=512, decoder_dim=768, attention_dim=512, inference_dim=512, layers=2.

    >>> import torch, bayesattn as ba
    >>> model = Seq2Seq(20, 30, ba.alignment.Variational(samples=1), encoder_dim=8, decoder_dim=8, attention_dim=8)
    >>> source, target = torch.randint(3, 20, (2, 5)), torch.randint(3, 30, (2, 7))
    >>> with ba.record() as latents:
    ...     nll = model(source, target)
    >>> ba.elbo(nll, latents).backward()
    >>> nll.shape
    torch.Size([2, 6])
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        attention: Objective | Posterior | None = None,
        *,
        embedding_dim: int = 256,
        encoder_dim: int = 256,
        decoder_dim: int = 256,
        attention_dim: int = 256,
        inference_dim: int = 256,
        layers: int = 1,
        dropout: float = 0.3,
        pad: int = 0,
        bos: int = 1,
        eos: int = 2,
    ):
        super().__init__()
        sizes = {
            "source_words": source_words,
            "target_words": target_words,
            "embedding_dim": embedding_dim,
            "encoder_dim": encoder_dim,
            "decoder_dim": decoder_dim,
            "attention_dim": attention_dim,
            "inference_dim": inference_dim,
            "layers": layers,
        }
        for name, size in sizes.items():
            checks.whole(name, size)
        checks.fraction("dropout", dropout)
        attention = Soft() if attention is None else attention
        self.objective = attention if isinstance(attention, Objective) else None
        self.pad, self.bos, self.eos = pad, bos, eos
        self.source_embedding = nn.Embedding(source_words, embedding_dim, padding_idx=pad)
        self.target_embedding = nn.Embedding(target_words, embedding_dim, padding_idx=pad)
        self.dropout = nn.Dropout(dropout)
        self.encoder = BidirectionalLSTM(embedding_dim, encoder_dim, layers, dropout)
        memory_dim = 2 * encoder_dim
        self.decoder = Decoder(
            embedding_dim, memory_dim, decoder_dim, attention_dim, layers, dropout, _recurrent_posterior(attention)
        )
        self.query_readout = nn.Linear(decoder_dim, decoder_dim)
        self.context_readout = nn.Linear(memory_dim, decoder_dim, bias=False)
        self.vocabulary = nn.Linear(decoder_dim, target_words)
        self.inference = None
        if self.objective is not None and self.objective.needs_posterior:
            self.inference = SequenceInference(embedding_dim, embedding_dim, inference_dim, layers, dropout)

    def forward(
        self, source: Shaped[Tensor, "batch source"], target: Shaped[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length-1"]:
        """The loss of every target token after the first, 0 at padding; the KL goes to the open `record()`.

        `target` begins with bos and ends with eos, then padding.
        """
        source_words, target_words = self._embed(source, target)
        encoded = self._encode(source_words, source)
        decoded = self.decoder(target_words[:, :-1], encoded)
        target_mask = target[:, 1:] != self.pad
        likelihood = self._likelihood(decoded, target[:, 1:])
        if self.objective is None:
            self.decoder.record_kl(decoded, encoded, target_mask)
            return -likelihood(decoded.contexts.unsqueeze(0)).squeeze(0).masked_fill(~target_mask, 0.0)
        posterior_scores = None
        if self.objective.needs_posterior:
            posterior_scores = self._infer(source_words, target_words[:, 1:], encoded.mask, target_mask)
        return self.objective(
            likelihood,
            encoded.memory,
            decoded.scores,
            posterior_scores,
            source_mask=encoded.mask,
            target_mask=target_mask,
        )

    def log_likelihood(
        self, source: Shaped[Tensor, "batch source"], target: Shaped[Tensor, "batch length"], k_max: int | None = None
    ) -> Float[Tensor, "batch length-1"]:
        """log p of every target token after the first as the model predicts it, without inference network; 0 at padding.

        For categorical alignments it is the exact marginal, or with `k_max` that of the K most probable positions, which are
        then also what is fed back.
        """
        source_words, target_words = self._embed(source, target)
        encoded = self._encode(source_words, source)
        decoded = self.decoder(target_words[:, :-1], encoded, k_max)
        values = self._mixture(decoded, encoded, k_max).log_probability(self._likelihood(decoded, target[:, 1:]))
        return values.masked_fill(target[:, 1:] == self.pad, 0.0)

    def alignments(
        self, source: Shaped[Tensor, "batch source"], target: Shaped[Tensor, "batch length"]
    ) -> tuple[Float[Tensor, "batch length-1 source"], Float[Tensor, "batch length-1 source"] | None]:
        """The prior's and, if there is an inference network, the posterior's weights of every target token after the first."""
        source_words, target_words = self._embed(source, target)
        encoded = self._encode(source_words, source)
        prior = log_weights(self.decoder(target_words[:, :-1], encoded).scores, encoded.mask).exp()
        if self.inference is None:
            return prior, None
        scores = self._infer(source_words, target_words[:, 1:], encoded.mask, target[:, 1:] != self.pad)
        return prior, log_weights(scores, encoded.mask).exp()

    @torch.no_grad()
    def translate(
        self,
        source: Shaped[Tensor, "batch source"],
        *,
        width: int = 10,
        max_length: int = 100,
        length_penalty: float = 1.0,
        k_max: int | None = None,
    ) -> Hypotheses:
        """Beam search with the model's own prediction (for categorical alignments the marginal) at every step."""
        checks.whole("width", width)
        encoded = self._encode(self.dropout(self.source_embedding(source)), source).repeat(width)

        def next_words(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            query, scores, state = self.decoder.step(self.target_embedding(tokens), state, encoded, k_max)
            decoded = Decoded(query.unsqueeze(1), scores.unsqueeze(1), state[-1].unsqueeze(1))
            words = self._mixture(decoded, encoded, k_max).log_probability(
                lambda contexts: self._logits(self.query_readout(decoded.queries), contexts).log_softmax(-1)
            )
            return words.squeeze(1), state

        return beam_search(
            next_words,
            self.decoder.start(encoded.memory),
            batch=source.shape[0],
            width=width,
            bos=self.bos,
            eos=self.eos,
            max_length=max_length,
            length_penalty=length_penalty,
            forbidden=(self.pad, self.bos),
            device=source.device,
        )

    def _embed(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded once, so that inference network and model share a dropout mask."""
        return self.dropout(self.source_embedding(source)), self.dropout(self.target_embedding(target))

    def _encode(self, words: Tensor, source: Tensor) -> Source:
        mask = source != self.pad
        memory = self.encoder(words, mask)
        return Source(memory, self.decoder.key_projection(memory), mask)

    def _infer(self, source_words: Tensor, target_words: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        if self.inference is None:
            raise ValueError(
                f"{type(self.objective).__name__} needs an inference network, and this model was made without one: "
                "make it with an objective that has needs_posterior, then replace model.objective."
            )
        return self.inference(source_words, target_words, source_mask, target_mask)

    def _mixture(self, decoded: Decoded, encoded: Source, k_max: int | None) -> Mixture:
        if self.objective is None:
            contexts = decoded.contexts.unsqueeze(0)
            return Mixture(contexts, contexts.new_zeros(contexts.shape[:-1]))
        return self.objective.mixture(encoded.memory, decoded.scores, source_mask=encoded.mask, k_max=k_max)

    def _logits(self, query: Tensor, contexts: Float[Tensor, "choices batch #target features"]) -> Tensor:
        hidden = self.dropout(torch.tanh(query + self.context_readout(contexts)))
        return to_compute(self.vocabulary(hidden))

    def _likelihood(self, decoded: Decoded, labels: Tensor) -> LogLikelihood:
        query = self.query_readout(decoded.queries)  # once, not for every choice

        def likelihood(contexts: Tensor) -> Tensor:
            logits = self._logits(query, contexts)
            every = labels.expand(logits.shape[:-1])
            return -F.cross_entropy(logits.flatten(0, -2), every.flatten(), reduction="none").view(every.shape)

        return likelihood


def perplexity(model: Seq2Seq, batches: Iterable[tuple[Tensor, Tensor]], k_max: int | None = None) -> float:
    """exp of the mean negative log-likelihood of a target token (eos included): exact, or with K-max alignments."""
    total, tokens = 0.0, 0
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            for source, target in batches:
                total -= float(model.log_likelihood(source, target, k_max).sum(dtype=torch.float64))
                tokens += int((target[:, 1:] != model.pad).sum())
    finally:
        model.train(before)
    if tokens == 0:
        raise ValueError("batches holds no target token.")
    return math.exp(total / tokens)


def _recurrent_posterior(attention: Objective | Posterior) -> Posterior:
    if isinstance(attention, Objective):
        return Softmax()
    if not isinstance(attention, Posterior):
        raise TypeError(
            f"attention must be an objective such as ba.alignment.Marginal() or a posterior such as ba.Weibull(k=10.0), got {attention!r}."
        )
    if getattr(attention, "max_len", None) is not None:
        raise ValueError(
            f"attention={attention!r} is tied to query positions by max_len, but the decoder attends one position at a time: "
            "use max_len=None."
        )
    return attention
