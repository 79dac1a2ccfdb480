"""30 English sentences, each marked 1 if some word's part of speech is ambiguous, else 0 (Cinquin 2021, table A.8)."""

from __future__ import annotations

from dataclasses import dataclass

from bayesattn.experiments.data.files import DataError, DataFile, read_text

FILE = DataFile(
    "pos_ambiguity/sentences.tsv",
    "5bc3acd8dac456ed8a891cfcf99e222071423f5ea159ce6e304698c9465874a3",
    "table A.8 of Cinquin's thesis, as lines `sentence<TAB>0 or 1` below the header `sentence<TAB>ambiguous`",
)


@dataclass(frozen=True)
class MarkedSentence:
    """A sentence and whether it is ambiguous."""

    words: list[str]
    ambiguous: bool


def load_pos_ambiguity() -> list[MarkedSentence]:
    """The sentences."""
    text, path = read_text(FILE)
    sentences = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        columns = line.split("\t")
        if len(columns) != 2 or not columns[0].strip() or columns[1] not in ("0", "1"):
            raise DataError(
                f"{path}, line {number}: expected `sentence<TAB>0 or 1`, got {line[:60]!r}. {FILE.remedy()}"
            )
        sentences.append(MarkedSentence(columns[0].split(), columns[1] == "1"))
    return sentences
