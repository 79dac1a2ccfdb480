"""SQuAD 1.1 and 2.0 from their published files: questions whose answers are spans of a paragraph; in 2.0 some have none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.experiments.data.files import DataError, DataFile
from bayesattn.experiments.data.published import published_files
from bayesattn.experiments.data.records import field, read_json, records

SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/"


@dataclass(frozen=True)
class SpanQuestion:
    """A question on a context, and what annotators marked there."""

    text: str
    context: str
    answers: tuple[str, ...]
    """As they stand in the context; empty: the context does not answer it."""
    starts: tuple[int, ...]
    """The place of the first character of each."""


def read_squad(path: Path) -> list[SpanQuestion]:
    """The questions of one part: train-v1.1.json, dev-v2.0.json and so on."""
    found = []
    remedy = f"Get {path.name} again from {SOURCE}."
    for article_place, article in records(read_json(path), "data", path):
        for number, paragraph in enumerate(field(article, "paragraphs", list, path, article_place)):
            place = f"{article_place}.paragraphs[{number}]"
            context = field(paragraph, "context", str, path, place)
            for turn, record in enumerate(field(paragraph, "qas", list, path, place)):
                found.append(_question(record, context, path, f"{place}.qas[{turn}]", remedy))
    if not found:
        raise DataError(f"{path} holds no questions. {remedy}")
    return found


def _question(record: Any, context: str, path: Path, place: str, remedy: str) -> SpanQuestion:
    text = field(record, "question", str, path, place)
    impossible = record.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise DataError(
            f"{path}, {place}: 'is_impossible' must be true or false, not {str(impossible)[:40]!r}. {remedy}"
        )
    answers, starts = [], []
    for number, answer in enumerate(field(record, "answers", list, path, place)):
        where = f"{place}.answers[{number}]"
        said, start = field(answer, "text", str, path, where), field(answer, "answer_start", int, path, where)
        if not said or start < 0 or context[start : start + len(said)] != said:
            stands = context[max(0, start) : max(0, start) + len(said)]
            raise DataError(
                f"{path}, {where}: the answer {said[:40]!r} does not stand at character {start} of its context, where {stands[:40]!r} is. "
                f"{remedy}"
            )
        answers.append(said)
        starts.append(start)
    if impossible == bool(answers):
        raise DataError(
            f"{path}, {place}: the question {text[:40]!r} "
            + (f"is impossible, and has an answer. {remedy}" if impossible else f"has no answer. {remedy}")
        )
    return SpanQuestion(text, context, tuple(answers), tuple(starts))


def squad_files(data: str, version: str) -> tuple[DataFile, ...]:
    """Train and dev of one version, in the folder `data` or in one of that name below $BAYESATTN_DATA."""
    return published_files(data, tuple(f"{part}-v{version}.json" for part in ("train", "dev")), SOURCE)
