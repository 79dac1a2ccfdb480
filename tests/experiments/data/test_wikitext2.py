"""WikiText-2 as sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.data import wikitext2
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.wikitext2 import load_sentences, split_sentences
from helpers.data_files import put

TEXT = """
 = A heading . =

 The <unk> ran . It cost 1 @,@ 000 £ ! No end here
"""


def test_headings_go_and_sentences_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    monkeypatch.setattr(wikitext2, "FILES", tuple(put(tmp_path, file, TEXT.encode()) for file in wikitext2.FILES))
    expected = ["the [UNK] ran .", "it cost 1,000 £ !", "no end here"]
    assert load_sentences() == (expected, expected, expected)


def test_a_quotation_ends_with_its_mark_and_does_not_take_the_next_ones() -> None:
    assert list(split_sentences('He said " go . " " Why ? " she asked .')) == [
        'he said " go . "',
        '" why ? "',
        "she asked .",
    ]


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    monkeypatch.setattr(wikitext2, "FILES", tuple(put(tmp_path, file, b"\xff\xfe\xfa") for file in wikitext2.FILES))
    with pytest.raises(DataError, match=r"wiki.train.tokens.gz is not UTF-8"):
        load_sentences()
