"""The report of a saved Hugging Face model on sentences: how sure it is of each, and what it looks at."""

from __future__ import annotations

from pathlib import Path

import torch

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.page import Page
from bayesattn.experiments.report.runs_page import DRAWS, EXPLORED
from bayesattn.experiments.report.saved_classifier import encoded, explored_text, saved_classifier
from bayesattn.experiments.tasks.portrait import words
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.prediction.sampled import predict

SAMPLES = 32
AT_ONCE = 32
"""Sentences that are run together."""


def model_page(model: Path, sentences: Path) -> Page:
    """A converted text classifier that `save_pretrained` wrote, with its tokenizer, on a file of sentences, one a line."""
    classifier, tokenizer = saved_classifier(model)
    texts = _lines(sentences)
    names = [classifier.config.id2label[index] for index in range(classifier.config.num_labels)]
    torch.manual_seed(0)
    prediction = CategoricalPrediction(
        torch.cat(
            [
                predict(classifier, encoded(tokenizer, texts[start : start + AT_ONCE]), SAMPLES).samples
                for start in range(0, len(texts), AT_ONCE)
            ],
            1,
        )
    )
    said, entropies = prediction.label.tolist(), prediction.entropy.tolist()
    disagreement = prediction.mutual_information.tolist()
    shown = [
        sections.Shown(
            words(text.split()),
            entropies[place],
            f"{names[said[place]]} ({prediction.mean[place, said[place]].item():.2f}), mutual information {disagreement[place]:.3f}",
        )
        for place, text in enumerate(texts)
    ]
    order = prediction.entropy.argsort().tolist()
    chosen = list(dict.fromkeys([*order[:EXPLORED], *order[-EXPLORED:]]))
    title = f"{Path(model).name} on {Path(sentences).name}"
    return Page(
        title,
        f"{len(texts)} sentences, {SAMPLES} samples each. Entropy: how unsure the prediction is; mutual information: how much of "
        "that is because samples disagree. Made by bayesattn report.",
        (
            sections.most_and_least_certain(shown, Path(model).name),
            sections.entropies({Path(model).name: prediction.entropy}, {}, len(names)),
            sections.explorer(
                {Path(model).name: [explored_text(classifier, tokenizer, texts[place], DRAWS) for place in chosen]}
            ),
        ),
    )


def _lines(path: Path) -> list[str]:
    try:
        texts = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path} is not text in UTF-8 ({problem.reason} at byte {problem.start}).") from None
    texts = [text for text in texts if text]
    if not texts:
        raise ValueError(f"{path} holds no sentence: put one on each line.")
    return texts
