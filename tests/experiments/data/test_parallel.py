"""Parallel text, and every way in which it can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.data import iwslt14, multi30k
from bayesattn.experiments.data.files import DataError, DataFile, locate
from bayesattn.experiments.data.parallel import ParallelFiles, read_parallel
from helpers.data_files import put

GERMAN, ENGLISH = DataFile("corpus/a.de", "", "the first site"), DataFile("corpus/a.en", "", "the second site")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    return tmp_path


def files(folder: Path, german: bytes, english: bytes) -> ParallelFiles:
    return ParallelFiles(put(folder, GERMAN, german), put(folder, ENGLISH, english))


def test_lines_are_pairs_and_only_a_newline_ends_one(folder: Path) -> None:
    text = read_parallel(files(folder, "Über uns\u2028hier\nZwei\n".encode(), b"About us here\nTwo"))
    assert text.source == ["Über uns\u2028hier", "Zwei"]
    assert text.target == ["About us here", "Two"]


@pytest.mark.parametrize(
    ("german", "english", "fault"),
    [
        (b"a\nb\n", b"a\n", r"corpus/a.de has 2 lines and corpus/a.en has 1.*the first site.*the second site"),
        (b"a\n\nc\n", b"a\nb\nc\n", r"a.de.gz, line 2 is empty.*the first site"),
        (b"a\n", b"\xff\n", r"a.en.gz is not UTF-8 text.*the second site"),
        (b"", b"", r"a.de.gz is empty"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, german: bytes, english: bytes, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        read_parallel(files(folder, german, english))


def test_a_damaged_file_is_named(folder: Path) -> None:
    pair = files(folder, b"Ein Hund.\n" * 50, b"A dog.\n" * 50)
    path = folder / "corpus/a.en.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a.en.gz is damaged.*truncated.*the second site"):
        read_parallel(pair)


def test_training_data_that_only_a_person_can_make_is_asked_for(folder: Path) -> None:
    with pytest.raises(
        DataError, match=r"iwslt14/train.de was not found.*prepare-iwslt14.sh.*tmp/train.de.*BAYESATTN_DATA"
    ):
        read_parallel(iwslt14.TRAIN)


def test_its_checksum_is_not_known_and_not_asked_for(folder: Path) -> None:
    for file, line in ((iwslt14.TRAIN.source, b"ein hund .\n"), (iwslt14.TRAIN.target, b"a dog .\n")):
        put(folder, file, line)
    assert read_parallel(iwslt14.TRAIN).source == ["ein hund ."]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "pairs"),
    [
        (multi30k.TRAIN, 29_000),
        (multi30k.VALIDATION, 1014),
        (multi30k.TEST, 1000),
        (iwslt14.VALIDATION, 7282),
        (iwslt14.TEST, 6750),
    ],
)
def test_the_real_files(part: ParallelFiles, pairs: int) -> None:
    if locate(part.source) is None:
        pytest.skip("the data is not here")
    assert len(read_parallel(part)) == pairs
