"""A small parallel corpus in place of a real one: every German word has one English word, in the same order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bayesattn.experiments.data.parallel import ParallelFiles
from bayesattn.experiments.tasks.translation import TranslationTask
from helpers.data_files import put

WORDS = {
    "ein": "a",
    "hund": "dog",
    "katze": "cat",
    "mann": "man",
    "kind": "child",
    "sieht": "sees",
    "jagt": "chases",
    "rot": "red",
    "klein": "small",
    "heute": "today",
}
SMALL = {
    "vocabulary": 60,
    "embedding_dim": 16,
    "encoder_dim": 16,
    "decoder_dim": 16,
    "attention_dim": 16,
    "inference_dim": 16,
    "dropout": 0.0,
    "beam": 2,
    "longest": 10,
    "k_max": 2,
}
"""Options of a model that learns it in seconds."""


def sentences(count: int, seed: int) -> tuple[list[str], list[str]]:
    """German and English sentences of two to five words."""
    chosen = random.Random(seed)
    german = [chosen.choices(list(WORDS), k=chosen.randint(2, 5)) for _ in range(count)]
    return [" ".join(words).capitalize() + "." for words in german], [
        " ".join(WORDS[word] for word in words).capitalize() + "." for words in german
    ]


def put_corpus(folder: Path, task: type[TranslationTask], monkeypatch: pytest.MonkeyPatch, train: int = 200) -> None:
    """Write a corpus where the task's files are looked for, and the cache beside it."""
    monkeypatch.setenv("BAYESATTN_DATA", str(folder / "data"))
    monkeypatch.setenv("BAYESATTN_CACHE", str(folder / "cache"))
    for seed, (name, count) in enumerate((("train_files", train), ("validation_files", 10), ("test_files", 20))):
        files: ParallelFiles = getattr(task, name)
        german, english = sentences(count, seed)
        written = [
            put(folder / "data", file, "".join(line + "\n" for line in lines).encode())
            for file, lines in ((files.source, german), (files.target, english))
        ]
        monkeypatch.setattr(task, name, ParallelFiles(*written))
