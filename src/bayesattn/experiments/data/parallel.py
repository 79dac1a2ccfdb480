"""Parallel text: two files of which line n is the same sentence in two languages."""

from __future__ import annotations

from dataclasses import dataclass

from bayesattn.experiments.data.files import DataError, DataFile, read_text


@dataclass(frozen=True)
class ParallelFiles:
    """The two files of one part of a corpus."""

    source: DataFile
    target: DataFile


@dataclass(frozen=True)
class ParallelText:
    """Sentences and their translations."""

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        return len(self.source)


def read_parallel(files: ParallelFiles) -> ParallelText:
    """The sentence pairs of two files, which must have equally many lines, none of them empty."""
    source, target = _lines(files.source), _lines(files.target)
    if len(source) != len(target):
        raise DataError(
            f"{files.source.path} has {len(source)} lines and {files.target.path} has {len(target)}: line by line they must be the "
            f"same sentences. {files.source.remedy()} {files.target.remedy()}"
        )
    return ParallelText(source, target)


def _lines(file: DataFile) -> list[str]:
    text, path = read_text(file)
    lines = text.split("\n")  # and not splitlines(): a sentence may hold one of Unicode's other separators
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise DataError(f"{path}, line {number} is empty: every line must hold a sentence. {file.remedy()}")
    if not lines:
        raise DataError(f"{path} is empty. {file.remedy()}")
    return lines
