"""What a fitted model makes of sentences: perplexity, alignments, translations, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bayesattn.alignment import Objective, entropy_of_log_weights
from bayesattn.experiments.data.subwords import PAD, trimmed
from bayesattn.experiments.models.seq2seq import Seq2Seq, perplexity
from bayesattn.support.annotations import Shaped

BATCH = 50


class Translations:
    """Of given source sentences, by the point estimate of a model; sentences of similar length go together.

    Args:
        model: a fitted model.
        source: token ids, [sentences, length], padded.
    """

    def __init__(self, model: Seq2Seq, source: Shaped[Tensor, "n length"]):
        self.model = model.eval()
        self.source = source
        self._batches = (source != PAD).sum(1).argsort(stable=True).split(BATCH)

    def perplexity(
        self,
        target: Shaped[Tensor, "n target_length"],
        k_max: int | None = None,
        tested_as: Objective | None = None,
    ) -> float:
        """Of a target token, exactly or with K-max alignments, and if told so as another objective predicts."""
        return perplexity(self.model, self._pairs(target), k_max, tested_as)

    @torch.no_grad()
    def prior_entropy(self, target: Shaped[Tensor, "n target_length"]) -> float:
        """Of the alignment of a target token before it is seen, in nats: the mean over all tokens."""
        total, tokens = 0.0, 0
        for source, target_part in self._pairs(target):
            prior, _ = self.model.alignments(source, target_part)
            real = target_part[:, 1:] != PAD
            total += float(entropy_of_log_weights(prior.clamp_min(torch.finfo(prior.dtype).tiny).log())[real].sum())
            tokens += int(real.sum())
        return total / tokens

    def search(
        self, width: int, longest: int, length_penalty: float = 1.0, k_max: int | None = None
    ) -> list[list[int]]:
        """The best translation of each sentence that beam search finds, without its end."""
        found: list[list[int]] = [[] for _ in self.source]
        for places in self._batches:
            hypotheses = self.model.translate(
                trimmed(self.source[places]),
                width=width,
                max_length=longest,
                length_penalty=length_penalty,
                k_max=k_max,
            )
            for place, tokens in zip(places.tolist(), hypotheses.best(), strict=True):
                found[place] = tokens
        return found

    def _pairs(self, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        target = target.to(self.source.device)
        return ((trimmed(self.source[places]), trimmed(target[places])) for places in self._batches)
