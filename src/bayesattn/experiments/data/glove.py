"""GloVe's word vectors from a published file: a line for each word, the word and its numbers with spaces between them."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

from bayesattn.experiments.data.files import DataError

REMEDY = "Get it again from https://nlp.stanford.edu/projects/glove/ (glove.6B.zip), and unpack it."


def read_glove(path: Path, words: Collection[str], dim: int) -> dict[str, list[float]]:
    """The vectors of those of `words` that the file has. The file is read line by line: it may be far larger than what is kept.

    A word may have spaces in it, as some of the largest file's do: the last `dim` entries of a line are its numbers.
    """
    if not path.is_file():
        raise DataError(f"{path} was not found. {REMEDY}")
    wanted, found = set(words), dict[str, list[float]]()
    number = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            word, vector = _parsed(line, number, path, dim)
            if word in wanted:
                found[word] = vector
    if not found:
        raise DataError(
            f"{path} has none of the {len(wanted)} words in its {number} lines: is it of another language? {REMEDY}"
        )
    return found


def _parsed(line: bytes, number: int, path: Path, dim: int) -> tuple[str, list[float]]:
    try:
        cells = line.decode().rstrip("\r\n").split(" ")
    except UnicodeDecodeError:
        raise DataError(f"{path}, line {number} is not UTF-8 text. {REMEDY}") from None
    if len(cells) <= dim or (len(cells) > dim + 1 and _is_number(cells[-dim - 1])):
        raise DataError(
            f"{path}, line {number}: expected a word and {dim} numbers, got {len(cells) - 1} entries after the word. Set embedding_dim to "
            f"the width of the file's vectors, or: {REMEDY}"
        )
    try:
        vector = [float(cell) for cell in cells[-dim:]]
    except ValueError:
        vector = [math.nan]
    if not all(map(math.isfinite, vector)):
        raise DataError(f"{path}, line {number}: {line[:40]!r} … is not a word and {dim} finite numbers. {REMEDY}")
    return " ".join(cells[:-dim]), vector


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
