"""How good captions are: BLEU (by sacrebleu), ROUGE-L and CIDEr-D as COCO's evaluation has them, METEOR where it can be had.

Captions are words in lower case without punctuation, as COCO's tokeniser leaves them.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
import statistics
from collections import Counter
from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

Caption = Sequence[str]
References = Sequence[Sequence[Caption]]
"""For each image, its captions."""

LONGEST_NGRAM = 4
ROUGE_BETA = 1.2
CIDER_SIGMA = 6.0
"""Of the Gaussian that punishes a caption of another length than the reference."""


def caption_scores(captions: Sequence[Caption], references: References) -> dict[str, float]:
    """All scores in percent, CIDEr-D too (its largest value is 1,000)."""
    if len(captions) != len(references) or not captions:
        raise ValueError(f"There must be one caption for each image; got {len(captions)} for {len(references)} images.")
    found = {f"bleu_{order}": bleu(captions, references, order) for order in range(1, LONGEST_NGRAM + 1)}
    found["rouge_l"] = 100 * statistics.fmean(map(rouge_l, captions, references))
    found["cider_d"] = 100 * statistics.fmean(cider_d(captions, references))
    if has_meteor():
        found["meteor"] = 100 * meteor(captions, references)
    return found


def bleu(captions: Sequence[Caption], references: References, order: int = 4) -> float:
    """BLEU of the whole corpus up to n-grams of this order, without smoothing, in percent."""
    most = max(len(each) for each in references)
    # sacrebleu wants the k-th references of all sentences together; a sentence that has fewer repeats its first, which changes nothing
    streams = [[" ".join(each[k] if k < len(each) else each[0]) for each in references] for k in range(most)]
    scorer = BLEU(tokenize="none", smooth_method="none", max_ngram_order=order, force=True)
    return scorer.corpus_score([" ".join(caption) for caption in captions], streams).score


def rouge_l(caption: Caption, references: Sequence[Caption]) -> float:
    """F of the longest common subsequence, from the best precision and the best recall over the references."""
    lengths = [_longest_common_subsequence(caption, reference) for reference in references]
    precision = max(length / max(1, len(caption)) for length in lengths)
    recall = max(length / len(reference) for length, reference in zip(lengths, references, strict=True))
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + ROUGE_BETA**2) * precision * recall / (recall + ROUGE_BETA**2 * precision)


def cider_d(captions: Sequence[Caption], references: References) -> list[float]:
    """CIDEr-D of each caption (Vedantam et al. 2015), at most 10: n-grams weighed by how few images' references have them.

    The mean over n = 1 … 4 and over the references of 10 · exp(-(length difference)² / 2σ²) · min(g, r) · r / (|g| |r|), with g and r the
    tf-idf vectors of caption and reference. The document frequencies are those of these references.
    """
    documents: Counter[tuple[str, ...]] = Counter()
    for each in references:
        documents.update({ngram for reference in each for ngram in _ngrams(reference)})
    log_images = math.log(len(references))

    def vectors(words: Caption) -> list[dict[tuple[str, ...], float]]:
        orders: list[dict[tuple[str, ...], float]] = [{} for _ in range(LONGEST_NGRAM)]
        for ngram, count in _ngrams(words).items():
            orders[len(ngram) - 1][ngram] = count * (log_images - math.log(max(1, documents[ngram])))
        return orders

    def score(caption: Caption, each: Sequence[Caption]) -> float:
        mine = vectors(caption)
        similarities = [
            math.exp(-((len(caption) - len(reference)) ** 2) / (2 * CIDER_SIGMA**2)) * _clipped_cosine(given, wanted)
            for reference in each
            for given, wanted in zip(mine, vectors(reference), strict=True)
        ]
        return 10 * statistics.fmean(similarities)

    return [score(caption, each) for caption, each in zip(captions, references, strict=True)]


def has_meteor() -> bool:
    """Whether METEOR can be computed: it is Java, and comes with the package pycocoevalcap."""
    return shutil.which("java") is not None and importlib.util.find_spec("pycocoevalcap") is not None


def meteor(captions: Sequence[Caption], references: References) -> float:
    """METEOR 1.5 by pycocoevalcap, which is no dependency of this package: 104 MB of jars."""
    from pycocoevalcap.meteor.meteor import Meteor  # pyright: ignore[reportMissingImports]

    given = {number: [" ".join(caption)] for number, caption in enumerate(captions)}
    wanted = {number: [" ".join(reference) for reference in each] for number, each in enumerate(references)}
    score, _ = Meteor().compute_score(wanted, given)
    return score


def _ngrams(words: Caption) -> Counter[tuple[str, ...]]:
    """All n-grams up to the longest, and how often each occurs."""
    return Counter(
        tuple(words[start : start + order])
        for order in range(1, LONGEST_NGRAM + 1)
        for start in range(len(words) - order + 1)
    )


def _clipped_cosine(given: dict[tuple[str, ...], float], wanted: dict[tuple[str, ...], float]) -> float:
    """Cosine of two vectors, in which repeating an n-gram more often than the reference gains nothing."""
    product = sum(min(value, wanted.get(ngram, 0.0)) * wanted.get(ngram, 0.0) for ngram, value in given.items())
    norms = math.hypot(*given.values()) * math.hypot(*wanted.values())
    return product / norms if norms else 0.0


def _longest_common_subsequence(first: Caption, second: Caption) -> int:
    lengths = [0] * (len(second) + 1)
    for word in first:
        before = 0
        for place, other in enumerate(second, start=1):
            above = lengths[place]
            lengths[place] = before + 1 if word == other else max(above, lengths[place - 1])
            before = above
    return lengths[-1]
