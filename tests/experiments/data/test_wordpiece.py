"""Wordpieces: there and back, and from the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bayesattn.experiments.data.toy_sentences import toy_sentences
from bayesattn.experiments.data.wordpiece import CLS, PAD, SEP, UNK, Wordpieces, padded


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wordpieces:
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path))
    return Wordpieces.trained(toy_sentences(300), 120)


def test_texts_come_back_and_special_tokens_do_not(words: Wordpieces) -> None:
    texts = ["anna saw the boats.", "hugo left the [UNK] road by the sea."]
    rows = words.encode(texts)
    assert words.decode(rows) == texts
    assert UNK in rows[1]
    assert words.decode([[CLS, *rows[0], SEP, *rows[1], PAD]]) == texts[:1]
    assert len(words) <= 120


def test_the_cache_is_read_and_other_texts_are_another_entry(words: Wordpieces, tmp_path: Path) -> None:
    (path,) = tmp_path.glob("wordpieces-*.json")
    stamp = path.stat().st_mtime_ns
    again = Wordpieces.trained(toy_sentences(300), 120)
    assert path.stat().st_mtime_ns == stamp
    assert again.encode(["the garden"]) == words.encode(["the garden"])
    Wordpieces.trained(toy_sentences(300, seed=1), 120)
    assert len(list(tmp_path.glob("wordpieces-*.json"))) == 2


def test_the_digest_tells_pieces_apart(words: Wordpieces) -> None:
    again, others = Wordpieces.trained(toy_sentences(300), 120), Wordpieces.trained(toy_sentences(300), 100)
    assert again.digest == words.digest != others.digest


def test_padding() -> None:
    assert torch.equal(padded([[7, 8], [9]], 4), torch.tensor([[7, 8, SEP, PAD], [9, SEP, PAD, PAD]]))
    with pytest.raises(ValueError, match="A text of 4 tokens and its end do not fit into 4"):
        padded([[7, 7, 7, 7]], 4)
