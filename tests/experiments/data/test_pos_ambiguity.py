"""The marked sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.data import pos_ambiguity
from bayesattn.experiments.data.files import DataError, locate
from bayesattn.experiments.data.pos_ambiguity import FILE, MarkedSentence, load_pos_ambiguity
from helpers.data_files import put


def test_a_line_without_a_mark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    file = put(tmp_path, FILE, b"sentence\tambiguous\nTime flies\t1\nHe slept\n")
    monkeypatch.setattr(pos_ambiguity, "FILE", file)
    with pytest.raises(DataError, match=r"sentences.tsv.gz, line 3: expected .*got 'He slept'.*table A.8"):
        load_pos_ambiguity()


def test_sentences_and_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    monkeypatch.setattr(
        pos_ambiguity, "FILE", put(tmp_path, FILE, b"sentence\tambiguous\nTime flies\t1\nHe slept\t0\n")
    )
    assert load_pos_ambiguity() == [MarkedSentence(["Time", "flies"], True), MarkedSentence(["He", "slept"], False)]


def test_the_real_sentences() -> None:
    if locate(FILE) is None:
        pytest.skip("the marked sentences are not here")
    assert sum(sentence.ambiguous for sentence in load_pos_ambiguity()) == 19
