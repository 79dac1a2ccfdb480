"""Questions on images and what people answered: VQA's JSON files, and the form that all such data sets are brought into."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.records import field, read_json, records

KINDS = ("yes-no", "number", "other")
"""Kinds of answers, as VQA has them."""


@dataclass(frozen=True)
class Questions:
    """Questions on images; the lists have one entry for each question."""

    texts: list[str]
    images: list[str]
    """Ids of the images."""
    answers: list[tuple[str, ...]]
    """One answer of each annotator."""
    kinds: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def where(self, chosen: list[bool]) -> Questions:
        """Those that are marked."""

        def kept(values: list[Any]) -> list[Any]:
            return [value for value, mark in zip(values, chosen, strict=True) if mark]

        return Questions(kept(self.texts), kept(self.images), kept(self.answers), kept(self.kinds))


def kind_of(answer: str) -> str:
    """The kind of a single answer: yes or no, a number, or something else.

    >>> kind_of("no"), kind_of("12"), kind_of("table")
    ('yes-no', 'number', 'other')
    """
    if answer in ("yes", "no"):
        return "yes-no"
    return "number" if answer.isdigit() else "other"


def read_vqa(questions: Path, annotations: Path) -> Questions:
    """The questions and annotations of one part of VQA (v1 or v2), joined by question_id."""
    asked: dict[int, tuple[str, str]] = {}
    for place, record in records(read_json(questions), "questions", questions):
        number = field(record, "question_id", int, questions, place)
        if number in asked:
            raise DataError(f"{questions}, {place}: question_id {number} is there twice.")
        asked[number] = (
            field(record, "question", str, questions, place),
            str(field(record, "image_id", int, questions, place)),
        )
    texts, images, answers, kinds = [], [], [], []
    for place, record in records(read_json(annotations), "annotations", annotations):
        number = field(record, "question_id", int, annotations, place)
        if number not in asked:
            raise DataError(
                f"{annotations}, {place}: question_id {number} is not in {questions.name}, or is there twice: the two files must be of the "
                "same part of VQA."
            )
        text, image = asked.pop(number)
        if str(field(record, "image_id", int, annotations, place)) != image:
            raise DataError(
                f"{annotations}, {place}: question_id {number} is on image {record['image_id']}, in {questions.name} on image {image}."
            )
        given = [
            normalised(field(answer, "answer", str, annotations, f"{place}, answers"))
            for answer in field(record, "answers", list, annotations, place)
        ]
        if not given:
            raise DataError(f"{annotations}, {place}: question_id {number} has no answers.")
        texts.append(text)
        images.append(image)
        answers.append(tuple(given))
        kind = field(record, "answer_type", str, annotations, place).replace("/", "-")
        if kind not in KINDS:
            raise DataError(f"{annotations}, {place}: 'answer_type' {kind!r} is none of {', '.join(KINDS)}.")
        kinds.append(kind)
    if asked:
        raise DataError(
            f"{len(asked)} of the questions in {questions} have no annotation in {annotations.name}, the first of them question_id "
            f"{next(iter(asked))}."
        )
    if not texts:
        raise DataError(f"{annotations} holds no annotations.")
    return Questions(texts, images, answers, kinds)


_NUMBERS = {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())  # noqa: SIM905
} | {"none": "0"}


def normalised(answer: str) -> str:
    """An answer as VQA compares it: lower case, no punctuation and articles, number words as digits.

    Contractions keep or lose their apostrophe as they come; VQA's list of misspelt contractions is not applied.

    >>> normalised("The two dogs."), normalised("1,000"), normalised("t-shirt")
    ('2 dogs', '1000', 't shirt')
    """
    text = answer.lower().replace("\n", " ").replace("\t", " ").strip()
    text = re.sub(r"(?<=\d),(?=\d)", "", text)
    text = re.sub(r"(?<!\d)\.|\.(?!\d)", "", text)
    text = re.sub(r"[;/\[\]\"{}()=+\\_\-><@`,?!]", " ", text)
    words = [_NUMBERS.get(word, word) for word in text.split()]
    return " ".join(word for word in words if word not in ("a", "an", "the"))
