"""Eight tasks of GLUE: CoLA (is the sentence acceptable?), SST-2 (is the review positive?), RTE (does the second sentence follow from the
first?), MRPC and QQP (do both say the same?), STS-B (how similar are they, 0 to 5?), MNLI (does the second follow, contradict it, or
neither?), QNLI (does the sentence answer the question?).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bayesattn.experiments.data.files import DataError, DataFile, read_text
from bayesattn.support import checks

TaskName = Literal["CoLA", "SST-2", "RTE", "MRPC", "STS-B", "MNLI", "QNLI", "QQP"]
Split = Literal["train", "dev"]

_COLUMNS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "CoLA": ((3,), 1, 0),
    "SST-2": ((0,), 1, 1),
    "RTE": ((1, 2), 3, 1),
    "MRPC": ((3, 4), 0, 1),
    "STS-B": ((7, 8), 9, 1),
}
"""Columns of the sentences, column of the label, lines of header."""

_NAMED_COLUMNS: dict[str, tuple[tuple[str, str], str]] = {
    "MNLI": (("sentence1", "sentence2"), "gold_label"),
    "QNLI": (("question", "sentence"), "label"),
    "QQP": (("question1", "question2"), "is_duplicate"),
}
"""Where the parts of a task have other columns: the names in the header, of the sentences and of the label."""

LABELS: dict[str, tuple[str, ...]] = {
    "RTE": ("entailment", "not_entailment"),
    "QNLI": ("entailment", "not_entailment"),
    "MNLI": ("entailment", "neutral", "contradiction"),
}
"""How labels are written; those of other tasks are 0 and 1, or a score."""

_SHA256 = {
    "CoLA": (
        "cb368ebeb9f27d7ad03720d27ddc95687a311bdb100781a2fe59a5f5b1bc0624",
        "8c013e21dc39957cac37378d87bebe225b694a0d5fe13eded66c2856628833fd",
    ),
    "SST-2": (
        "48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1",
        "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0",
    ),
    "RTE": (
        "41e3a9b063433392343fad9e962cf2f58b681c78d8f71592f4186f0837246c5c",
        "80230dfa1347282e7b532b06a1004a76a710087541189bf874223ddf0e3819fb",
    ),
    "MRPC": (
        "f178bcc72ab4c2c1c778b480912e0c8e1dba3ead150dc1d490d70682ab888c1e",
        "9e8f284788040f7c9ecde2e1b3c07237c756f926bd9ef8548ef5d34b56f69f17",
    ),
    "STS-B": (
        "41c4d978b6162abdcada7e49a982211954cca5459c228db478af333124b257a2",
        "fe7dc0632a5033562f3cadff991f6e8d9b9b6311861660e78c3c82eb7db67f59",
    ),
}

FILES: dict[str, dict[str, DataFile]] = {
    task: {
        split: DataFile(f"glue/{task}/{split}.tsv", sha256, "https://gluebenchmark.com/tasks (tab-separated files)")
        for split, sha256 in zip(("train", "dev"), sums, strict=True)
    }
    for task, sums in _SHA256.items()
} | {
    task: {
        split: DataFile(f"glue/{task}/{name}.tsv", None, "https://gluebenchmark.com/tasks (tab-separated files)")
        for split, name in (("train", "train"), ("dev", "dev_matched" if task == "MNLI" else "dev"))
    }
    for task in _NAMED_COLUMNS
}


@dataclass(frozen=True)
class Sentences:
    """Sentences, or first and second ones, and their labels: the class's number, or a score."""

    texts: list[str]
    labels: list[int] | list[float]
    seconds: list[str] | None = None
    sources: list[str] | None = None
    """Of CoLA: which book or paper a sentence is from."""

    def __len__(self) -> int:
        return len(self.texts)


def load_glue(task: TaskName, split: Split) -> Sentences:
    """One part of one task. Train / dev: CoLA 8,551 / 1,043, SST-2 67,349 / 872, RTE 2,490 / 277, MRPC 3,667 / 408, STS-B 5,749 / 1,500.

    MNLI's dev part is the matched one.
    """
    checks.one_of("task", task, FILES)
    checks.one_of("split", split, ("train", "dev"))
    file = FILES[task][split]
    text, path = read_text(file)
    lines = text.rstrip("\n").split("\n")
    columns, label, header = _COLUMNS[task] if task in _COLUMNS else _found_columns(task, lines[0], path, file)
    texts: list[list[str]] = []
    labels: list[float] = []
    for number, line in enumerate(lines[header:], start=header + 1):
        cells = line.rstrip("\r").split("\t")
        try:
            texts.append([cells[column] for column in columns])
            labels.append(_label(task, cells[label]))
        except (IndexError, ValueError):
            unknown = (
                " '-' says that the annotators did not agree; GLUE leaves such pairs out." if cells[-1] == "-" else ""
            )
            raise DataError(
                f"{path}, line {number}: expected {max(*columns, label) + 1} columns with a label in column {label + 1}, "
                f"got {line[:60]!r}.{unknown} Take the line out, or: {file.remedy()}"
            ) from None
    if not texts:
        raise DataError(f"{path} holds no sentences. {file.remedy()}")
    first, *second = zip(*texts, strict=True)
    whole = labels if task == "STS-B" else [int(each) for each in labels]
    sources = [line.split("\t")[0] for line in lines[header:]] if task == "CoLA" else None
    return Sentences(list(first), whole, list(second[0]) if second else None, sources)


def _label(task: str, cell: str) -> float:
    if task == "STS-B":
        score = float(cell)
        if not 0 <= score <= 5:
            raise ValueError(f"{score} is no similarity")
        return score
    return float(LABELS.get(task, ("0", "1")).index(cell))


def _found_columns(task: str, header: str, path: Path, file: DataFile) -> tuple[tuple[int, ...], int, int]:
    """The columns that the header names."""
    names = header.rstrip("\r").split("\t")
    sentences, label = _NAMED_COLUMNS[task]
    for name in (*sentences, label):
        if name not in names:
            raise DataError(
                f"{path}, line 1: there is no column {name!r} among {', '.join(names)[:100]}. {file.remedy()}"
            )
    return tuple(names.index(name) for name in sentences), names.index(label), 1
