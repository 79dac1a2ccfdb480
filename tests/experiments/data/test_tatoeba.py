"""Tatoeba: the split, and what is wrong with a file."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bayesattn.experiments.data.files import DataError, DataFile, locate
from bayesattn.experiments.data.tatoeba import FILE, read_tatoeba
from helpers.data_files import put


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    return tmp_path


def _check_split(file: DataFile, pairs: int) -> tuple[int, int, int]:
    train, validation, test = read_tatoeba(file)
    english = [{text.lower() for text in part.target} for part in (train, validation, test)]
    for one, other in itertools.combinations(english, 2):
        assert not one & other
    german = {text.lower() for part in (validation, test) for text in part.source}
    assert not german & {text.lower() for text in train.source}
    assert len(train) + len(validation) + len(test) <= pairs
    return len(train), len(validation), len(test)


def test_no_english_sentence_is_in_two_parts_and_no_held_out_german_one_trains(folder: Path) -> None:
    lines = [
        f"Sentence number {number}.\tSatz {number if copy or number % 10 else 0}, {copy}.\n"
        for number in range(2000)
        for copy in range(3)
    ]
    file = put(folder, FILE, "".join(lines).encode())
    train, validation, test = _check_split(file, 6000)
    assert train > 5000
    assert 60 <= validation <= 180
    assert 60 <= test <= 180
    shuffled = put(folder, FILE, "".join(reversed(lines)).encode())
    assert read_tatoeba(shuffled)[2] == read_tatoeba(shuffled)[2]
    numbers = [int(text.split()[-1][:-1]) for text in read_tatoeba(shuffled)[2].target]
    assert numbers != sorted(numbers), "the first so many test pairs are not the shortest"
    assert numbers != sorted(numbers, reverse=True)


def test_a_part_is_decided_by_the_english_sentence_alone(folder: Path) -> None:
    first = put(folder, FILE, b"".join(b"Sentence %d.\tSatz %d.\n" % (n, n) for n in range(500)))
    held_out = set(read_tatoeba(first)[2].target)
    more = put(folder, FILE, b"".join(b"SENTENCE %d.\tWort %d.\n" % (n, n) for n in range(900)))
    found = {text.capitalize() for text in read_tatoeba(more)[2].target}
    assert held_out
    assert held_out <= found


@pytest.mark.parametrize("line", ["Run!", "Run!\t ", "Run!\tLauf!\tRenn!", ""])
def test_a_line_that_is_no_pair_is_named(folder: Path, line: str) -> None:
    file = put(folder, FILE, f"Hi.\tHallo!\n{line}\nHi.\tTag!\n".encode())
    with pytest.raises(
        DataError, match=r"deu.txt.gz, line 2 is not an English sentence, a tab and a German one.*dats6450_nlp"
    ):
        read_tatoeba(file)


@pytest.mark.slow
def test_the_real_file() -> None:
    if locate(FILE) is None:
        pytest.skip("the data is not here")
    assert _check_split(FILE, 169_197) == (161_421, 3393, 3332)
