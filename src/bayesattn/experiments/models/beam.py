"""Batched beam search with a length penalty, for anything that gives the next word's log probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesattn.support import checks
from bayesattn.support.annotations import Float, Shaped

NextWords = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""(last tokens [rows], state) → (log probabilities [rows, words], new state); rows = batch · width, a sentence's rows adjacent."""


@dataclass(frozen=True)
class Hypotheses:
    """Finished sentences, best first: tokens without the first (bos), ended and filled up by eos; -inf marks an empty place."""

    tokens: Shaped[Tensor, "batch width length"]
    scores: Float[Tensor, "batch width"]
    eos: int

    def best(self) -> list[list[int]]:
        """The tokens of each example's best sentence, without eos."""
        sentences = self.tokens[:, 0].tolist()
        return [sentence[: sentence.index(self.eos)] for sentence in sentences]


def beam_search(
    next_words: NextWords,
    state: Any,
    *,
    batch: int,
    width: int,
    bos: int,
    eos: int,
    max_length: int,
    length_penalty: float = 1.0,
    forbidden: Sequence[int] = (),
    device: torch.device | str = "cpu",
) -> Hypotheses:
    """The sentences of highest score log p / ((5 + length) / 6)^length_penalty that a beam finds (Wu et al. 2016).

    A sentence has at most `max_length` tokens with its eos, and the bos counts in its length, as in Deng et al. The search
    of an example ends when no unfinished hypothesis can still beat its best finished one, so that a beam as wide as all
    prefixes is exhaustive search. An example's result does not depend on the others of its batch.

    Args:
        next_words: (last tokens [rows], state) → (log probabilities [rows, words], new state).
        state: tensors, or tuples, lists and dicts of them, with batch · width rows first; the beam reorders them.
        batch, width: examples, and hypotheses of each.
        bos, eos: the first token, and the one that ends a sentence.
        max_length: longest sentence, eos included.
        length_penalty: exponent, 0 for none (the paper: 1).
        forbidden: tokens that are never written, such as padding.
        device: of the tokens.
    """
    for name, value in (("batch", batch), ("width", width), ("max_length", max_length)):
        checks.whole(name, value)
    if checks.finite("length_penalty", length_penalty) < 0:
        raise ValueError(
            f"length_penalty must not be negative, got {length_penalty!r}: 0 is none, 1 that of the paper."
        )

    def penalty(tokens: int) -> float:
        return ((5 + 1 + tokens) / 6) ** length_penalty

    minus_infinity = float("-inf")
    tokens = torch.full((batch, width, 0), bos, device=device)
    last = torch.full((batch * width,), bos, device=device)
    live = torch.full((batch, width), minus_infinity, device=device)
    live[:, 0] = 0.0
    finished = Hypotheses(
        torch.full((batch, width, max_length), eos, device=device), torch.full_like(live, minus_infinity), eos
    )
    first_rows = torch.arange(batch, device=device).unsqueeze(1) * width
    for length in range(1, max_length + 1):
        log_probs, state = next_words(last, state)
        log_probs = _allowed(log_probs.float(), eos, forbidden, only_eos=length == max_length)
        words = log_probs.shape[-1]
        totals = (live.unsqueeze(-1) + log_probs.view(batch, width, words)).flatten(1)
        # at most `width` of the candidates end a sentence, so twice as many always hold `width` that do not
        best = totals.topk(min(2 * width, totals.shape[1]), 1)
        beams, written = best.indices // words, best.indices % words
        ends = written == eos
        candidates = torch.cat([_take(tokens, beams), written.unsqueeze(-1)], -1)
        ending = best.values.masked_fill(~ends, minus_infinity)[:, :width] / penalty(length)
        finished = _merge(finished, candidates[:, :width], ending)
        survivors = best.values.masked_fill(ends, minus_infinity).topk(min(width, best.values.shape[1]), 1)
        live, tokens = survivors.values, _take(candidates, survivors.indices)
        # log p only falls and the penalty is largest at the end: an upper bound of what a hypothesis can still reach
        reachable = live / penalty(max_length)
        live = live.masked_fill(reachable <= finished.scores[:, :1], minus_infinity)
        if not live.isfinite().any():
            break
        rows = (first_rows + beams.gather(1, survivors.indices)).flatten()
        state = pytree.tree_map(lambda tensor, rows=rows: tensor.index_select(0, rows), state)
        last = tokens[..., -1].flatten()
    return finished


def _allowed(log_probs: Tensor, eos: int, forbidden: Sequence[int], only_eos: bool) -> Tensor:
    blocked = torch.full((log_probs.shape[-1],), only_eos, device=log_probs.device)
    blocked[list(forbidden)] = True
    blocked[eos] = False
    return log_probs.masked_fill(blocked, float("-inf"))


def _take(tokens: Tensor, indices: Tensor) -> Tensor:
    return tokens.gather(1, indices.unsqueeze(-1).expand(*indices.shape, tokens.shape[-1]))


def _merge(finished: Hypotheses, tokens: Tensor, scores: Tensor) -> Hypotheses:
    """The best of those finished before and those that end now, filled up with eos."""
    longest = finished.tokens.shape[-1]
    filled = F.pad(tokens, (0, longest - tokens.shape[-1]), value=finished.eos)
    filled = filled.masked_fill(scores.isneginf().unsqueeze(-1), finished.eos)
    everything = torch.cat([finished.scores, scores], 1)
    best = everything.topk(finished.scores.shape[1], 1)
    return Hypotheses(_take(torch.cat([finished.tokens, filled], 1), best.indices), best.values, finished.eos)
