"""POS tagging on a small treebank whose tags a word alone decides, but for one ambiguous word."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.data import pos_ambiguity, ud_ewt
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.ud_ewt import PAD, TAGS, load_ud_ewt
from bayesattn.experiments.runs import configure, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.pos import PosOptions
from helpers.data_files import conllu, put

SURE = [
    ("The", "the", "DET"),
    ("dog", "dog", "NOUN"),
    ("sees", "see", "VERB"),
    ("a", "a", "DET"),
    ("cat", "cat", "NOUN"),
]
DOUBTFUL = [
    [("He", "he", "PRON"), ("will", "will", "AUX"), ("race", "race", tag), ("it", "it", "PRON")]
    for tag in ("NOUN", "VERB")
]


@pytest.fixture
def treebank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    content = conllu([SURE, *DOUBTFUL] * 60)
    monkeypatch.setattr(ud_ewt, "FILES", tuple(put(tmp_path, file, content) for file in ud_ewt.FILES))
    lines = "sentence\tambiguous\nHe will race it\t1\nThe dog sees a cat\t0\nA cat sees the dog\t0\n"
    monkeypatch.setattr(pos_ambiguity, "FILE", put(tmp_path, pos_ambiguity.FILE, lines.encode()))
    load_ud_ewt.cache_clear()
    yield tmp_path
    load_ud_ewt.cache_clear()


def test_figures_with_and_without_padding(treebank: Path) -> None:
    task = TASKS.create("pos")
    splits = task.load()
    tokens, _ = splits.test

    def all_x(tokens: torch.Tensor) -> ba.CategoricalPrediction:
        logits = torch.zeros(1, *tokens.shape, len(TAGS))
        logits[..., TAGS.index("X")] = 30.0
        return ba.CategoricalPrediction(logits)

    found = task.evaluate(all_x, splits).metrics
    padding = (tokens == PAD).float().mean().item()
    assert found["accuracy"] == pytest.approx(padding)
    assert found["accuracy_without_padding"] == 0
    words = (tokens != PAD).sum(1).float().mean().item()
    assert found["log_likelihood"] == pytest.approx(-30 * words, rel=1e-4)
    assert found["log_likelihood_without_padding"] == pytest.approx(-30 * words, rel=1e-4)


def test_what_cannot_be_known_has_the_entropy(treebank: Path, tmp_path: Path) -> None:
    """`race` is NOUN or VERB in the same sentence: a calibrated tagger is unsure there, and nowhere else."""
    config = configure(
        "pos", "mle", training={"epochs": 40, "batch_size": 30, "learning_rate": 1e-2}, task_options={"hidden": 16}
    )
    result = run(config, tmp_path / "runs")
    metrics = result["metrics"]
    best = 1 - (2 / 3) * (1 / 2) / ((5 + 4 + 4) / 3)  # one word in two of three sentences is a coin flip
    assert metrics["accuracy_without_padding"] == pytest.approx(best, abs=0.01)
    ideal = -(2 / 3) * math.log(2)
    assert ideal - 0.15 < metrics["log_likelihood"] < ideal + 0.01
    assert metrics["ambiguity_auroc"] == 1
    assert metrics["ambiguity_accuracy"] == 1
    assert metrics["treebank_ambiguity_auroc"] == 1
    assert metrics["treebank_ambiguity_word_auroc"] == 1
    assert result["details"]["highest_entropy"][0]["sentence"] == "He will race it"
    assert result["details"]["lowest_entropy"][0]["sentence"] == "The dog sees a cat"
    assert result["details"]["lowest_entropy"][0]["tokens"] == "the dog see a cat"


def test_the_ambiguity_test_can_be_left_out_and_is_never_left_out_silently(
    treebank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (treebank / "pos_ambiguity/sentences.tsv.gz").unlink()
    with pytest.raises(DataError, match=r"sentences.tsv was not found"):
        TASKS.create("pos").load()
    task = TASKS.create("pos", PosOptions(ambiguity=False))
    splits = task.load()
    found = task.evaluate(lambda t: ba.CategoricalPrediction(torch.zeros(1, *t.shape, len(TAGS))), splits).metrics
    assert "ambiguity_auroc" not in found
