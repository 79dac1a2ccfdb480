"""GloVe's file: words and vectors, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.glove import read_glove

TEXT = "the 0.5 -1\ndog 1 2e-1\n. . 3 4\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "glove.txt"
    path.write_text(TEXT)
    return path


def test_the_words_that_are_wanted_and_there(file: Path) -> None:
    assert read_glove(file, ["dog", "cat", ". ."], 2) == {"dog": [1.0, 0.2], ". .": [3.0, 4.0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"the 0.5 -1\ndog 1\n",
            "line 2: expected a word and 2 numbers, got 1 entries after the word. Set embedding_dim",
        ),
        (b"the 0.5 -1 7\n", "line 1: expected a word and 2 numbers, got 3 entries after the word. Set embedding_dim"),
        (b"the 0.5 -1\ndog 1 x\n", "line 2: b'dog 1 x.* is not a word and 2 finite numbers"),
        (b"the 0.5 nan\n", "line 1: .* is not a word and 2 finite numbers"),
        (b"caf\xe9 1 2\n", "line 1 is not UTF-8 text"),
        (b"", "has none of the 1 words in its 0 lines"),
        (b"le 1 2\n", "has none of the 1 words in its 1 lines: is it of another language"),
    ],
)
def test_a_wrong_file_is_named_with_its_line_and_a_remedy(file: Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"glove.txt.*{message}") as caught:
        read_glove(file, ["dog"], 2)
    assert "https://nlp.stanford.edu/projects/glove/" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing.txt was not found"):
        read_glove(tmp_path / "nothing.txt", ["dog"], 2)
