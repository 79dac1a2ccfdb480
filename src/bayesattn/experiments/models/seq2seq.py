"""Translation as in Deng et al. 2018: bidirectional LSTM encoder, LSTM decoder with input feeding, one MLP attention."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.alignment import BidirectionalLSTM, ContextMixture, Objective, SequenceInference, Soft, log_weights
from bayesattn.alignment.mixture import LogLikelihood
from bayesattn.experiments.models.beam import Hypotheses, beam_search
from bayesattn.experiments.models.decoder import Decoded, Decoder, Source, State
from bayesattn.experiments.models.stepwise import stepwise_posterior
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors import Posterior
from bayesattn.support import checks
from bayesattn.support.annotations import Float, Shaped


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
            embedding_dim, memory_dim, decoder_dim, attention_dim, layers, dropout, stepwise_posterior(attention)
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
            posterior_scores = self._infer(source_words, target_words, encoded.mask, target_mask)
        return self.objective(
            likelihood,
            encoded.memory,
            decoded.scores,
            posterior_scores,
            source_mask=encoded.mask,
            target_mask=target_mask,
        )

    def log_likelihood(
        self,
        source: Shaped[Tensor, "batch source"],
        target: Shaped[Tensor, "batch length"],
        k_max: int | None = None,
        tested_as: Objective | None = None,
    ) -> Float[Tensor, "batch length-1"]:
        """log p of every target token after the first as the model predicts it, without inference network; 0 at padding.

        For categorical alignments it is the exact marginal, or with `k_max` that of the K most probable positions, which are
        then also what is fed back. `tested_as` predicts as another objective does, however the model was trained: `Marginal()`
        gives the latent mixture Σ_k p_k f(k) (with `k_max`, the "Soft KMax" of a model that was trained by `Soft()`), `Soft()` one
        average context. The paper, section 5: "it is possible to train with soft attention and test using K-Max with a small
        performance drop (...) (On the other hand, training with latent alignments and testing with soft attention performed badly)".
        """
        source_words, target_words = self._embed(source, target)
        encoded = self._encode(source_words, source)
        decoded = self.decoder(target_words[:, :-1], encoded, k_max)
        mixture = self._mixture(decoded, encoded, k_max, tested_as or self.objective)
        values = mixture.log_probability(self._likelihood(decoded, target[:, 1:]))
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
        scores = self._infer(source_words, target_words, encoded.mask, target[:, 1:] != self.pad)
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
            query_readout = self.query_readout(decoded.queries)
            words = self._mixture(decoded, encoded, k_max, self.objective).log_probability(
                lambda contexts: self._logits(query_readout, self.context_readout(contexts)).log_softmax(-1)
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
        """Posterior scores of every target token after the first; that of position j sees y_j and all others."""
        if self.inference is None:
            raise ValueError(
                f"{type(self.objective).__name__} needs an inference network, and this model was made without one: "
                "make it with an objective that has needs_posterior, then replace model.objective."
            )
        return self.inference(source_words, target_words[:, 1:], source_mask, target_mask)

    def _mixture(
        self, decoded: Decoded, encoded: Source, k_max: int | None, objective: Objective | None
    ) -> ContextMixture:
        if objective is None:
            contexts = decoded.contexts.unsqueeze(0)
            return ContextMixture(contexts, contexts.new_zeros(contexts.shape[:-1]))
        return objective.mixture(encoded.memory, decoded.scores, source_mask=encoded.mask, k_max=k_max)

    def _logits(self, query: Tensor, context: Tensor) -> Tensor:
        """Of every word, from the readouts of query and context."""
        return to_compute(self.vocabulary(self.dropout(torch.tanh(query + context))))

    def _likelihood(self, decoded: Decoded, labels: Tensor) -> LogLikelihood:
        """Contexts → log p of the labels; padding, which no one looks at, never reaches the vocabulary and gets 0."""
        real = labels != self.pad
        query, wanted = self.query_readout(decoded.queries)[real], labels[real]

        def likelihood(
            contexts: Float[Tensor, "choices batch #target features"],
        ) -> Float[Tensor, "choices batch target"]:
            readout = self.context_readout(contexts).expand(-1, -1, labels.shape[1], -1)
            logits = self._logits(query, readout[:, real])
            every = wanted.expand(logits.shape[:-1])
            values = -F.cross_entropy(logits.flatten(0, 1), every.flatten(), reduction="none").view(every.shape)
            return values.new_zeros(len(contexts), *labels.shape).masked_scatter(real, values)

        return likelihood


def perplexity(
    model: Seq2Seq,
    batches: Iterable[tuple[Tensor, Tensor]],
    k_max: int | None = None,
    tested_as: Objective | None = None,
) -> float:
    """exp of the mean negative log-likelihood of a target token (eos included): exact, or with K-max alignments, or both as another
    objective predicts."""
    total, tokens = 0.0, 0
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            for source, target in batches:
                total -= float(model.log_likelihood(source, target, k_max, tested_as).sum(dtype=torch.float64))
                tokens += int((target[:, 1:] != model.pad).sum())
    finally:
        model.train(before)
    if tokens == 0:
        raise ValueError("batches holds no target token.")
    return math.exp(total / tokens)
