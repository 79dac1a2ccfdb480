"""Figure 2.1 of the thesis: how often each part of speech occurs."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import torch

from bayesattn.experiments.analysis.paper_figures.base import Places, add
from bayesattn.experiments.data.ud_ewt import PAD, TAGS, TaggedSentences, load_ud_ewt
from bayesattn.experiments.report.plots import save

matplotlib.use("Agg")

from matplotlib import pyplot


def shares_of(sentences: TaggedSentences) -> dict[str, float]:
    """Tag → its share of the words, the most frequent first; padding does not count."""
    counts = torch.bincount(sentences.tags[sentences.tokens != PAD], minlength=len(TAGS)).double()
    shares = {tag: share for tag, share in zip(TAGS, (counts / counts.sum()).tolist(), strict=True) if share}
    return dict(sorted(shares.items(), key=lambda each: -each[1]))


def draw_tag_shares(places: Places) -> list[Path]:
    """The shares of tags in the parts of UD English EWT, and of padding among all positions."""
    _, *parts = load_ud_ewt()
    named = dict(zip(("train", "validation", "test"), parts, strict=True))
    data = {
        "shares": {name: shares_of(part) for name, part in named.items()},
        "words": {name: int((part.tokens != PAD).sum()) for name, part in named.items()},
        "padding": {name: (part.tokens == PAD).double().mean().item() for name, part in named.items()},
    }
    figure, axes = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    shares = data["shares"]["train"]
    axes.bar(list(shares), list(shares.values()))
    axes.set(ylabel="share of the words", title="Tags of the training words")
    axes.tick_params(axis="x", labelrotation=60)
    return [places.keep("thesis-tags", data), save(figure, places.images / "pos" / "tag_shares.png")]


add("thesis-tags", "Figure 2.1: shares of the classes of POS tagging", draw_tag_shares)
