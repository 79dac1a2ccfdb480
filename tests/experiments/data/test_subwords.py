"""Subwords: text there and back, learned once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from bayesattn.experiments.data.subwords import BEGIN, END, PAD, UNKNOWN, Subwords, padded, trimmed

TEXT = ["Ein kleiner Hund sieht Männer.", "Ein Mann, ein Hund.", "Männer sehen den kleinen Hund!"] * 5


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("size", [40, 80])
def test_text_comes_back_in_lower_case(size: int) -> None:
    subwords = Subwords.train(TEXT, size)
    assert len(subwords) <= size
    tokens = subwords.encode(TEXT)
    assert all(sentence[0] == BEGIN and sentence[-1] == END for sentence in tokens)
    assert subwords.decode(tokens) == [sentence.lower() for sentence in TEXT]


def test_more_subwords_make_shorter_sentences_and_pieces_are_readable() -> None:
    few, many = Subwords.train(TEXT, 40), Subwords.train(TEXT, 80)
    assert sum(map(len, few.encode(TEXT))) > sum(map(len, many.encode(TEXT)))
    assert many.pieces(many.encode(["Ein Hund."])[0]) == ["<s>", "▁ein", "▁hund", ".", "</s>"]


def test_what_was_never_seen_is_unknown() -> None:
    (tokens,) = Subwords.train(TEXT, 80).encode(["ein 東"])
    assert UNKNOWN in tokens


def test_it_is_learned_once_and_from_these_sentences_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Subwords.train(TEXT, 60).encode(TEXT)
    assert len(list((cache / "subwords").iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train_from_iterator", None)
        assert Subwords.train(TEXT, 60).encode(TEXT) == first
    Subwords.train(TEXT[:-1], 60)
    Subwords.train(TEXT, 50)
    assert len(list((cache / "subwords").iterdir())) == 3


def test_learning_it_again_gives_the_same(cache: Path) -> None:
    """A run is loaded on another machine with an empty cache."""
    Subwords.train(TEXT, 60)
    (path,) = (cache / "subwords").iterdir()
    before = path.read_text()
    path.unlink()
    Subwords.train(TEXT, 60)
    assert path.read_text() == before


def test_padding_and_back() -> None:
    rows = padded([[1, 5, 2], [1, 2]])
    assert rows.tolist() == [[1, 5, 2], [1, 2, PAD]]
    wide = torch.nn.functional.pad(rows, (0, 4), value=PAD)
    assert torch.equal(trimmed(wide), rows)
