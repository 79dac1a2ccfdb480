"""A report of made-up figures, and the figures."""

from __future__ import annotations

import torch

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.page import Page
from bayesattn.experiments.tasks.portrait import Portrait, patches, words
from bayesattn.inspection import AttentionWeights
from bayesattn.prediction.predictions import CategoricalPrediction

SENTENCE = ("the", "old", "<b>man</b>", "boats")
"""With markup in it: a page must show it as it is."""


def weights(samples: int, heads: int, length: int, seed: int) -> AttentionWeights:
    """Random weights of one example."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(samples, heads, length, length, generator=generator).softmax(-1)
    prior = torch.rand(heads, length, length, generator=generator).softmax(-1)
    return AttentionWeights(draws, draws.mean(0), prior)


def examples(seed: int) -> list[sections.Explored]:
    """A sentence and an image, of two layers each."""
    image = torch.rand(8, 8, generator=torch.Generator().manual_seed(seed))
    portraits: list[tuple[str, Portrait]] = [("a sentence", words(SENTENCE)), ("an image", patches(image, 4))]
    return [
        sections.Explored(title, portrait, {f"layer {layer}": weights(3, 2, 4, seed + layer) for layer in (0, 1)})
        for title, portrait in portraits
    ]


MODELS = {"first": examples(0), "second": examples(10)}


def page() -> Page:
    """Every kind of section but the table's."""
    torch.manual_seed(0)
    prediction = CategoricalPrediction(torch.randn(4, 60, 3))
    labels = torch.randint(3, (60,))
    portraits = [words((*SENTENCE, str(place))) for place in range(60)]
    history = [{"nll": 3.0 / epoch, "validation_nll": 3.5 / epoch, "kl": 0.1 * epoch} for epoch in range(1, 6)]
    return Page(
        "A <report>",
        "Made by a test.",
        (
            sections.figures(["run", "accuracy"], [["first", "0.500"]], "Some figures."),
            sections.training({"first": history}),
            sections.reliability({"first": prediction.mean}, labels),
            sections.entropies({"first": prediction.entropy}, {"first": {"noise": prediction.entropy + 0.2}}, 3),
            sections.risk_coverage({"first": (prediction.entropy, prediction.label != labels)}),
            sections.interval_coverage({"first": [(0.5, 0.45), (0.9, 0.93)]}),
            sections.most_and_least_certain(sections.described(prediction, labels, portraits, "abc"), "first"),
            sections.explorer(MODELS),
        ),
    )
