"""Tatoeba, German to English: 169,197 pairs of short sentences, split by English sentence."""

from __future__ import annotations

import hashlib

from bayesattn.experiments.data.files import DataError, DataFile, read_text
from bayesattn.experiments.data.parallel import ParallelText

FILE = DataFile(
    "tatoeba_deu_eng/deu.txt",
    "7a363bf8587f1a9f895583574c7195071b02f9dfdf4d0d6605947c6b5e0c25a8",
    "https://github.com/jhamburg/dats6450_nlp (commit fc38d83, deu-eng.zip of manythings.org/anki, 2018-04-07: deu.txt)",
)
HELD_OUT = 0.02
"""Share of the English sentences that validate, and share that test."""


def read_tatoeba(file: DataFile = FILE) -> tuple[ParallelText, ParallelText, ParallelText]:
    """The pairs that train, validate and test.

    An English sentence has up to dozens of translations and all of them are in one part, which a digest of it decides (in lower case).
    So what is tested was never a target of training; pairs whose German sentence validates or tests are left out of training, so that
    it was never a source either. The file is in the order of length: the held-out parts are in that of the digests.
    """
    text, path = read_text(file)
    parts: tuple[list[tuple[float, str, str]], ...] = ([], [], [])
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        sides = line.split("\t")
        if len(sides) != 2 or not all(side.strip() for side in sides):
            raise DataError(
                f"{path}, line {number} is not an English sentence, a tab and a German one: {line[:60]!r}. {file.remedy()}"
            )
        place = _place(sides[0])
        parts[0 if place >= 2 * HELD_OUT else 1 if place >= HELD_OUT else 2].append((place, sides[1], sides[0]))
    train, validation, test = parts
    held_out = {german.lower() for part in (validation, test) for _, german, _ in part}
    return (
        _text([pair for pair in train if pair[1].lower() not in held_out]),
        _text(sorted(validation)),
        _text(sorted(test)),
    )


def _place(sentence: str) -> float:
    """A number in [0, 1) that depends on nothing but the sentence."""
    return int.from_bytes(hashlib.sha256(sentence.lower().encode()).digest()[:6], "big") / 2**48


def _text(pairs: list[tuple[float, str, str]]) -> ParallelText:
    return ParallelText([german for _, german, _ in pairs], [english for _, _, english in pairs])
