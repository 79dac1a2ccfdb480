"""Texts written again, written between two texts, and written from nothing: what the autoencoding tasks measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sacrebleu
import torch
from torch import Tensor

from bayesattn.experiments.data.wordpiece import PAD, Wordpieces, padded
from bayesattn.experiments.models.autoencoders.base import Autoencoder, Memory
from bayesattn.experiments.models.trigram import Trigram
from bayesattn.nvib import Mixture
from bayesattn.support.annotations import Float, Int

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The shares τ of the second text at which texts are written between two."""

_BATCH = 100


@dataclass(frozen=True)
class Writer:
    """A trained autoencoder and the words of its tokens."""

    model: Autoencoder
    words: Wordpieces

    def __post_init__(self) -> None:
        if int(self.model.words) != self.words.digest:
            raise ValueError(
                "The autoencoder was trained on other wordpieces than those in the cache, which are trained anew when they are missing, "
                "and then differ: put its wordpieces-*.json back into the cache, or train it again."
            )

    @torch.no_grad()
    def encode(self, tokens: Int[Tensor, "texts length"]) -> Memory:
        """What the bottleneck leaves of texts; the point estimate."""
        longest = max(1, int((tokens != PAD).sum(1).max()))
        return self.model.eval().encode(tokens[:, :longest])

    def write(self, memory: Memory) -> list[str]:
        """The text of each memory."""
        return self.words.decode(self.model.eval().write(memory).tolist())

    def interpolate(
        self, first: Int[Tensor, "texts length"], second: Int[Tensor, "texts length"], tau: float
    ) -> list[str]:
        """Texts written from a mixture of two texts' memories, of which τ is the second's share."""
        if not 0 <= tau <= 1:
            raise ValueError(f"tau must lie in [0, 1], got {tau!r}: it is the share of the second text.")
        texts = []
        for one, two in zip(first.split(_BATCH), second.split(_BATCH), strict=True):
            texts += self.write(self.encode(one).interpolate(self.encode(two), tau))  # pyright: ignore[reportArgumentType]
        return texts

    def generate(self, lengths: Int[Tensor, " texts"], generator: torch.Generator | None = None) -> list[str]:
        """Texts written from draws of the bottleneck's prior, for texts of about these lengths."""
        texts = []
        for part in lengths.split(_BATCH):
            texts += self.write(self.model.bottleneck.sample_prior(part, generator))
        return texts


def kept_share(memory: Memory, tokens: Int[Tensor, "texts length"]) -> Float[Tensor, " texts"]:
    """ν: of the vectors that the encoder gave for each text, the share that is kept. The prior's component counts, as published."""
    there = memory.mask.sum(1) if isinstance(memory, Mixture) else (tokens != PAD).sum(1)
    return memory.kept.sum(1) / there


def reconstruction(writer: Writer, tokens: Int[Tensor, "texts length"]) -> tuple[dict[str, float], dict[str, Any]]:
    """BLEU of texts written again, the share of vectors kept, NLL per token; and how many vectors a text of each length keeps."""
    written, shares, kept, nll = [], [], [], 0.0
    for part in tokens.split(_BATCH):
        memory = writer.encode(part)
        written += writer.write(memory)
        shares.append(kept_share(memory, part))
        kept.append(memory.kept.sum(1) - int(isinstance(memory, Mixture)))  # without the prior's
        with torch.no_grad():
            nll += writer.model(part).sum().item()
    originals, lengths, counts = writer.words.decode(tokens.tolist()), (tokens != PAD).sum(1), torch.cat(kept)
    figures = {
        "bleu": sacrebleu.corpus_bleu(written, [originals]).score,
        "retained": torch.cat(shares).mean().item(),
        "nll_per_token": nll / int(lengths.sum()),
        "exactly_right": sum(one == two for one, two in zip(written, originals, strict=True)) / len(originals),
    }
    by_length = [
        {"length": length, "texts": int(chosen.sum()), "kept": counts[chosen].double().mean().item()}
        for length in lengths.unique().tolist()
        if (chosen := lengths == length).any()
    ]
    examples = [{"original": one, "written": two} for one, two in zip(originals[:5], written[:5], strict=True)]
    return figures, {"kept_by_length": by_length, "written_again": examples}


def interpolation(
    writer: Writer, first: Int[Tensor, "texts length"], second: Int[Tensor, "texts length"], language: Trigram
) -> list[dict[str, Any]]:
    """For each τ: mean sentence BLEU to either text, the share that is neither, the perplexity, and the texts."""
    one, two = writer.words.decode(first.tolist()), writer.words.decode(second.tolist())
    found = []
    for tau in SHARES:
        texts = writer.interpolate(first, second, tau)
        found.append(
            {
                "tau": tau,
                "bleu_to_first": _mean_bleu(texts, one),
                "bleu_to_second": _mean_bleu(texts, two),
                "new": sum(text not in pair for text, *pair in zip(texts, one, two, strict=True)) / len(texts),
                "perplexity": language.perplexity(as_tokens(writer.words, texts)),
                "texts": texts,
            }
        )
    return found


def generation(
    writer: Writer, lengths: Int[Tensor, " texts"], tokens: Int[Tensor, "real length"], language: Trigram
) -> tuple[dict[str, float], list[str]]:
    """Texts from the prior: their perplexity to a model of real texts (forward), that of real texts to a model of them (reverse)."""
    texts = writer.generate(lengths)
    drawn = as_tokens(writer.words, texts)
    figures = {
        "forward_perplexity": language.perplexity(drawn),
        "reverse_perplexity": Trigram(drawn, language.vocabulary).perplexity(tokens),
        "different": len(set(texts)) / len(texts),
    }
    return figures, texts


def as_tokens(words: Wordpieces, texts: list[str]) -> Int[Tensor, "texts length"]:
    """Texts as padded tokens with their ends."""
    rows = words.encode(texts)
    return padded(rows, 1 + max(len(row) for row in rows))


def _mean_bleu(texts: list[str], references: list[str]) -> float:
    scores = [
        sacrebleu.sentence_bleu(text, [reference]).score for text, reference in zip(texts, references, strict=True)
    ]
    return sum(scores) / len(scores)
