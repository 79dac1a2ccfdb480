"""Captions by Att2in (Rennie et al. 2017): an LSTM whose cell, and nothing else, sees the image that it attends to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.alignment import Hard, Objective, Soft, log_weights
from bayesattn.alignment.categorical import at, draw
from bayesattn.experiments.models.beam import Hypotheses, beam_search
from bayesattn.experiments.models.stepwise import contextual_shares, record_steps, step_weights, stepwise_posterior
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors import Posterior
from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Shaped

State = tuple[Tensor, Tensor]
"""Hidden state and cell of the LSTM."""

Choose = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""Scores of the regions → their weights and, where one region was drawn, the log of its probability."""


@dataclass(frozen=True)
class Image:
    """The encoded regions of a batch of images."""

    memory: Float[Tensor, "batch regions hidden"]
    keys: Float[Tensor, "batch regions attention"]
    mask: Bool[Tensor, "batch regions"]

    def repeat(self, copies: int) -> Image:
        """Every image that many times, copies adjacent."""
        return Image(*(tensor.repeat_interleave(copies, 0) for tensor in (self.memory, self.keys, self.mask)))


@dataclass(frozen=True)
class Unrolled:
    """What was computed at every word of captions."""

    log_probabilities: Float[Tensor, "batch target"]
    """Of the next words; 0 at padding."""
    scores: Float[Tensor, "batch target regions"]
    weights: Float[Tensor, "batch target regions"]
    log_chosen: Float[Tensor, "batch target"] | None


class Captioner(nn.Module):
    """Regions of an image → words.

        scores_i = w · tanh(W_a memory_i + W_h h),   context = Σ weights_i memory_i
        i, f, o  = sigmoid(W [word; h] + b)                         input, forget and output gates: without the image
        cell     = i * maxout(W_c [word; h] + V context + b) + f * cell,    h = o * tanh(cell)

    The context comes in through the input gate alone. Every word's context depends on the regions chosen before, so that hard
    attention is trained by REINFORCE over whole captions: each choice is credited with the log-likelihood of the words from there on,
    less that of soft attention.

    Args:
        words: size of the vocabulary.
        region_dim: features of a region.
        attention: a posterior such as `ba.Weibull(...)`; `ba.alignment.Soft()` (default); or `ba.alignment.Hard(samples=1)`. In
            eval mode hard attention takes the most probable region, inside `sampling()` it draws.
        embedding_dim, hidden_dim, attention_dim: of words, of the LSTM and the encoded regions, of the attention's tanh layer (512).
        dropout: of words, regions and the LSTM's output.
        pad, bos, eos: special words. Padding comes last.

    >>> import torch, bayesattn as ba
    >>> model = Captioner(20, 7, ba.Weibull(k=10.0), embedding_dim=8, hidden_dim=8, attention_dim=8)
    >>> regions, mask = torch.randn(2, 4, 7), torch.ones(2, 4, dtype=torch.bool)
    >>> with ba.record() as latents:
    ...     nll = model(regions, mask, torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]]))
    >>> nll.shape, latents.local_kl.shape
    (torch.Size([2, 3]), torch.Size([2]))
    """

    def __init__(
        self,
        words: int,
        region_dim: int,
        attention: Posterior | Objective | None = None,
        *,
        embedding_dim: int = 512,
        hidden_dim: int = 512,
        attention_dim: int = 512,
        dropout: float = 0.5,
        pad: int = 0,
        bos: int = 1,
        eos: int = 2,
    ):
        super().__init__()
        sizes = {
            "words": words,
            "region_dim": region_dim,
            "embedding_dim": embedding_dim,
            "hidden_dim": hidden_dim,
            "attention_dim": attention_dim,
        }
        for name, size in sizes.items():
            checks.whole(name, size)
        checks.fraction("dropout", dropout)
        attention = Soft() if attention is None else attention
        self.hard = _hard(attention)
        self.posterior = stepwise_posterior(attention).bind(num_heads=1, head_dim=attention_dim)
        self.hidden_dim = hidden_dim
        self.pad, self.bos, self.eos = pad, bos, eos
        self.embedding = nn.Embedding(words, embedding_dim, padding_idx=pad)
        self.regions = nn.Linear(region_dim, hidden_dim)
        self.dropout = nn.Dropout(dropout)
        self.key_projection = nn.Linear(hidden_dim, attention_dim)
        self.query_projection = nn.Linear(hidden_dim, attention_dim, bias=False)
        self.score = nn.Linear(attention_dim, 1, bias=False)
        self.gates = nn.Linear(embedding_dim + hidden_dim, 3 * hidden_dim)
        self.cell = nn.Linear(embedding_dim + hidden_dim, 2 * hidden_dim)
        self.context = nn.Linear(hidden_dim, 2 * hidden_dim, bias=False)
        self.vocabulary = nn.Linear(hidden_dim, words)

    def forward(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        captions: Shaped[Tensor, "batch length"],
    ) -> Float[Tensor, "batch length-1"]:
        """The loss of every word after the first, 0 at padding; the KL goes to the open `record()`.

        Captions begin with bos and end with eos, then padding. For hard attention in training, the losses of a caption add up to an
        unbiased estimate with an unbiased gradient; one word's alone do not.
        """
        image = self._encode(regions, mask)
        if self.hard is not None and self._draws:
            return self._reinforced(image, captions, self.hard)
        found = self._unroll(image, captions, self._choose(image))
        self._record(found.scores, image, captions)
        return -found.log_probabilities

    def region_weights(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        captions: Shaped[Tensor, "batch length"],
    ) -> Float[Tensor, "batch length-1 regions"]:
        """The weights of the regions at every word, drawn or the point estimate."""
        image = self._encode(regions, mask)
        return self._unroll(image, captions, self._choose(image)).weights

    def prior_weights(
        self, regions: Float[Tensor, "batch regions features"], mask: Bool[Tensor, "batch regions"]
    ) -> Float[Tensor, "batch regions"] | None:
        """What a contextual prior gives each region, before any word; None without such a prior."""
        return contextual_shares(self.posterior, self._encode(regions, mask).keys, mask)

    @torch.no_grad()
    def caption(
        self,
        regions: Float[Tensor, "batch regions features"],
        mask: Bool[Tensor, "batch regions"],
        *,
        width: int = 5,
        max_length: int = 20,
        length_penalty: float = 0.0,
        forbidden: Sequence[int] = (),
    ) -> Hypotheses:
        """Captions by beam search; `width=1` is greedy. Padding, the first token and those `forbidden` are never written."""
        checks.whole("width", width)
        image = self._encode(regions, mask).repeat(width)
        choose = self._choose(image)

        def next_words(tokens: Tensor, state: State) -> tuple[Tensor, State]:
            state, _, _, _ = self._step(self.embedding(tokens), state, image, choose)
            return self._logits(state[0]).log_softmax(-1), state

        return beam_search(
            next_words,
            self._start(image),
            batch=len(regions),
            width=width,
            bos=self.bos,
            eos=self.eos,
            max_length=max_length,
            length_penalty=length_penalty,
            forbidden=(self.pad, self.bos, *forbidden),
            device=regions.device,
        )

    @property
    def _draws(self) -> bool:
        return self.training or modes.is_sampling()

    def _reinforced(self, image: Image, captions: Tensor, hard: Hard) -> Tensor:
        """Draws of whole sequences of regions, each choice with a score-function term of value 0."""
        copies = hard.samples or 1
        many, repeated = image.repeat(copies), captions.repeat_interleave(copies, 0)
        found = self._unroll(many, repeated, self._choose(many))
        reward = found.log_probabilities.detach()
        value = found.log_probabilities
        if hard.baseline == "soft":
            with torch.set_grad_enabled(torch.is_grad_enabled() and hard.train_baseline):
                soft = self._unroll(image, captions, self._soft(image)).log_probabilities.repeat_interleave(copies, 0)
            reward = reward - soft.detach()
            value = value + (soft - soft.detach())
        self._record(found.scores[::copies], image, captions)
        assert found.log_chosen is not None  # _choose has drawn
        to_go = reward.flip(1).cumsum(1).flip(1)
        log_chosen = found.log_chosen.masked_fill(repeated[:, 1:] == self.pad, 0.0)
        estimated = value + to_go * (log_chosen - log_chosen.detach())
        return -estimated.unflatten(0, (len(captions), copies)).mean(1)

    def _record(self, scores: Tensor, image: Image, captions: Tensor) -> None:
        """The KL of the posterior, which for hard attention is softmax's: 0."""
        record_steps(self.posterior, scores, image.keys, image.mask, captions[:, 1:] != self.pad)

    def _choose(self, image: Image) -> Choose:
        """How regions are weighed now."""
        if self.hard is None:
            return lambda scores: (step_weights(self.posterior, scores, image.mask), None)

        def one_region(scores: Tensor) -> tuple[Tensor, Tensor | None]:
            log_prior = log_weights(scores.unsqueeze(1), image.mask).squeeze(1)
            if self._draws:
                chosen = draw(log_prior, 1, modes.current_generator())
                log_chosen = at(log_prior, chosen)[0]
            else:
                chosen, log_chosen = log_prior.argmax(-1).unsqueeze(0), None
            return F.one_hot(chosen[0], scores.shape[-1]).to(log_prior.dtype), log_chosen

        return one_region

    def _soft(self, image: Image) -> Choose:
        return lambda scores: (log_weights(scores.unsqueeze(1), image.mask).squeeze(1).exp(), None)

    def _encode(self, regions: Tensor, mask: Tensor) -> Image:
        memory = self.dropout(F.relu(self.regions(regions)))
        return Image(memory, self.key_projection(memory), mask)

    def _start(self, image: Image) -> State:
        zeros = image.memory.new_zeros(len(image.memory), self.hidden_dim)
        return zeros, zeros

    def _step(
        self, word: Float[Tensor, "batch embedding"], state: State, image: Image, choose: Choose
    ) -> tuple[State, Tensor, Tensor, Tensor | None]:
        """The new state; scores and weights of the regions; the log probability of a drawn region."""
        hidden, cell = state
        scores = self.score(torch.tanh(image.keys + self.query_projection(hidden).unsqueeze(1))).squeeze(-1)
        weights, log_chosen = choose(scores)
        context = (weights.to(image.memory.dtype).unsqueeze(1) @ image.memory).squeeze(1)
        inputs = torch.cat([word, hidden], -1)
        enter, keep, show = self.gates(inputs).sigmoid().chunk(3, -1)
        first, second = (self.cell(inputs) + self.context(context)).chunk(2, -1)
        cell = enter * torch.maximum(first, second) + keep * cell
        return (show * torch.tanh(cell), cell), scores, weights, log_chosen

    def _unroll(self, image: Image, captions: Tensor, choose: Choose) -> Unrolled:
        """All words, given those before each."""
        state = self._start(image)
        hidden, scores, weights, chosen = [], [], [], []
        for word in self.dropout(self.embedding(captions[:, :-1])).unbind(1):
            state, *step = self._step(word, state, image, choose)
            hidden.append(state[0])
            for values, value in zip((scores, weights, chosen), step, strict=True):
                values.append(value)
        logits = self._logits(torch.stack(hidden, 1))
        labels = captions[:, 1:]
        log_probabilities = -F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return Unrolled(
            log_probabilities.masked_fill(labels == self.pad, 0.0),
            torch.stack(scores, 1),
            torch.stack(weights, 1),
            None if chosen[0] is None else torch.stack(chosen, 1),
        )

    def _logits(self, hidden: Tensor) -> Tensor:
        return to_compute(self.vocabulary(self.dropout(hidden)))


def _hard(attention: Posterior | Objective) -> Hard | None:
    if isinstance(attention, Objective) and not isinstance(attention, Soft):
        if isinstance(attention, Hard) and attention.samples is not None:
            return attention
        raise ValueError(
            f"attention={attention!r} needs all alignments of a word, and here each depends on those before it: take Soft(), "
            "Hard(samples=1), or a posterior such as ba.Weibull(k=10.0)."
        )
    return None
