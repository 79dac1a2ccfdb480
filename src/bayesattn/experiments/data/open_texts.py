"""Texts of known classes, and texts of none of them: CLINC150, Banking77, 20 Newsgroups."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from bayesattn.experiments.data.files import DataError, DataFile, read_text
from bayesattn.support import checks

SetName = Literal["clinc150", "banking77", "newsgroups"]
Labelled = list[tuple[str, str]]
"""Texts and the names of their classes."""

CLINC150 = DataFile(
    "clinc150/data_full.json",
    "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
    "https://github.com/clinc/oos-eval (data/data_full.json)",
    "https://raw.githubusercontent.com/clinc/oos-eval/master/data/data_full.json",
)
_BANKING = "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/"
BANKING77 = tuple(
    DataFile(f"banking77/{name}", sha256, f"{_BANKING}{name}", f"{_BANKING}{name}")
    for name, sha256 in (
        ("train.csv", "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b"),
        ("test.csv", "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d"),
    )
)
NEWSGROUPS = tuple(
    DataFile(
        f"newsgroups/{name}",
        sha256,
        "http://qwone.com/~jason/20Newsgroups (20news-bydate: a line of JSON with group, id and text for each message)",
    )
    for name, sha256 in (
        ("train.jsonl", "c90e09d1c43f0391431bb9666b93a2954d6facfe0f15464f0d7645540ce03a74"),
        ("test.jsonl", "9695abd85071db8d279e7260bca4f9db310729eba129707afcf69910410b5774"),
    )
)
FILES: dict[SetName, tuple[DataFile, ...]] = {
    "clinc150": (CLINC150, BANKING77[1]),
    "banking77": (*BANKING77, CLINC150),
    "newsgroups": NEWSGROUPS,
}
HELD_OUT_GROUPS = ("misc.forsale", "rec.sport.hockey", "sci.space", "talk.politics.mideast")
"""Newsgroups that are not trained on: one of each family, so that all but the first have siblings among the classes."""
HELD_OUT_SHARE = 0.1
"""Of the training texts of sets that have no validation part of their own."""


@dataclass(frozen=True)
class OpenTexts:
    """Three parts of one set, and texts of other classes by the name of where they come from."""

    train: Labelled
    validation: Labelled
    test: Labelled
    outside: dict[str, list[str]]

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return sorted({label for _, label in self.train})


def load_open_texts(name: SetName) -> OpenTexts:
    """One of the sets.

    CLINC150: 15,000 / 3,000 / 4,500 queries of 150 intents; outside are its 1,000 out-of-scope queries and, near, Banking77's test
    queries, some of whose intents CLINC150 has too. Banking77: 10,003 training queries of 77 intents, a tenth of which validates, and
    3,080 to test; outside are CLINC150's out-of-scope queries. Newsgroups: 16 groups, by date; outside are four others.
    """
    checks.one_of("name", name, FILES)
    if name == "clinc150":
        found = _clinc150()
        near = [text for text, _ in _banking77(BANKING77[1])]
        outside = {"oos": [text for text, _ in found["oos_test"]], "banking77": near}
        return OpenTexts(found["train"], found["val"], found["test"], outside)
    if name == "banking77":
        train, test = (_banking77(file) for file in BANKING77)
        return OpenTexts(*_split(train), test, {"oos": [text for text, _ in _clinc150()["oos_test"]]})
    train, test = (_newsgroups(file) for file in NEWSGROUPS)
    inside = lambda part: [(text, group) for text, group in part if group not in HELD_OUT_GROUPS]  # noqa: E731
    others = [text for text, group in test if group in HELD_OUT_GROUPS]
    return OpenTexts(*_split(inside(train)), inside(test), {"groups": others})


def _split(texts: Labelled) -> tuple[Labelled, Labelled]:
    """To train, to validate: drawn at random, the same for all seeds of a run."""
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    held = round(HELD_OUT_SHARE * len(texts))
    return [texts[index] for index in order[held:]], [texts[index] for index in order[:held]]


def _clinc150() -> dict[str, Labelled]:
    parts = ("train", "val", "test", "oos_test")
    return _parsed(
        CLINC150, lambda text: {part: [(str(a), str(b)) for a, b in json.loads(text)[part]] for part in parts}
    )


def _banking77(file: DataFile) -> Labelled:
    return _parsed(
        file, lambda text: [(row["text"].strip(), row["category"]) for row in csv.DictReader(io.StringIO(text))]
    )


def _newsgroups(file: DataFile) -> Labelled:
    def read(text: str) -> Labelled:
        messages = [json.loads(line) for line in text.split("\n") if line]
        bodies = [(body_of(message["text"]), message["group"]) for message in messages]
        return [(body, group) for body, group in bodies if body]  # some messages are nothing but quotation

    return _parsed(file, read)


def _parsed(file: DataFile, parse: Callable[[str], Any]) -> Any:
    text, path = read_text(file)
    try:
        found = parse(text)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
        raise DataError(
            f"{path} is not what it should be ({type(problem).__name__}: {problem}). {file.remedy()}"
        ) from None
    parts: Sequence[Any] = list(found.values()) if isinstance(found, dict) else [found]
    if not all(parts):
        raise DataError(f"{path} holds no texts. {file.remedy()}")
    return found


_QUOTED = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


def body_of(message: str) -> str:
    """A message without header, footer and quotations, as scikit-learn's `remove=` has it: they give the group away.

    >>> body_of("From: me\\nSubject: you\\n\\n> old\\nnew words\\n\\n--\\nname, address")
    'new words'
    """
    _, _, after = message.partition("\n\n")
    lines = after.strip().split("\n")
    ends = [number for number in range(len(lines)) if not lines[number].strip().strip("-")]
    if ends and ends[-1] > 0:
        lines = lines[: ends[-1]]
    return "\n".join(line for line in lines if not _QUOTED.search(line)).strip()
