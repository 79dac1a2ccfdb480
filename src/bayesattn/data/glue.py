"""GLUE's single-sentence tasks: CoLA (is the sentence acceptable?) and SST-2 (is the review positive?)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Literal

from bayesattn import checks
from bayesattn.data.folder import data_folder

_COLUMNS = {"CoLA": (3, 1, 0), "SST-2": (0, 1, 1)}
"""Column of the sentence, column of the label, lines of header."""


@dataclass(frozen=True)
class Sentences:
    """Sentences and their labels, 0 or 1."""

    texts: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.texts)


def load_glue(task: Literal["CoLA", "SST-2"], split: Literal["train", "dev"]) -> Sentences:
    """One part of one task. CoLA: 8,551 train, 1,043 dev; SST-2: 67,349 train, 872 dev."""
    checks.one_of("task", task, _COLUMNS)
    checks.one_of("split", split, ("train", "dev"))
    text, label, header = _COLUMNS[task]
    path = data_folder("glue") / task / f"{split}.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][header:]
    return Sentences([row[text] for row in rows], [int(row[label]) for row in rows])
