"""SQuAD's files: questions and their spans, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.squad import SpanQuestion, read_squad

CONTEXT = "The tower was built in 1889 by Eiffel."


def asked(**changes: Any) -> dict[str, Any]:
    return {"id": "1", "question": "When?", "answers": [{"text": "1889", "answer_start": 23}]} | changes


def written(folder: Path, *questions: Any) -> Path:
    paragraph = {"context": CONTEXT, "qas": list(questions)}
    path = folder / "dev-v2.0.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "T", "paragraphs": [paragraph]}]}))
    return path


def test_questions_and_spans_of_both_versions(tmp_path: Path) -> None:
    several = [{"text": "1889", "answer_start": 23}, {"text": "in 1889", "answer_start": 20}]
    impossible = asked(question="Why?", answers=[], is_impossible=True, plausible_answers=several)
    found = read_squad(written(tmp_path, asked(), asked(answers=several, is_impossible=False), impossible))
    assert found == [
        SpanQuestion("When?", CONTEXT, ("1889",), (23,)),
        SpanQuestion("When?", CONTEXT, ("1889", "in 1889"), (23, 20)),
        SpanQuestion("Why?", CONTEXT, (), ()),
    ]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            asked(answers=[{"text": "1890", "answer_start": 23}]),
            r"answers\[0\]: the answer '1890' does not stand at character 23 of its context, where '1889' is",
        ),
        (asked(answers=[{"text": "1889", "answer_start": -15}]), "does not stand at character -15 of its context"),
        (asked(answers=[{"text": "", "answer_start": 3}]), "the answer '' does not stand at character 3"),
        (asked(answers=[]), "the question 'When\\?' has no answer"),
        (asked(is_impossible=True), "the question 'When\\?' is impossible, and has an answer"),
        (asked(is_impossible="no"), "'is_impossible' must be true or false, not 'no'"),
    ],
)
def test_a_wrong_question_is_named_with_its_place_and_a_remedy(tmp_path: Path, question: Any, message: str) -> None:
    path = written(tmp_path, asked(), question)
    with pytest.raises(DataError, match=message) as caught:
        read_squad(path)
    assert f"{path}, data[0].paragraphs[0].qas[1]" in str(caught.value)
    assert "Get dev-v2.0.json again from https://rajpurkar" in str(caught.value)


def test_a_missing_field_and_an_empty_file_are_named(tmp_path: Path) -> None:
    without = asked()
    del without["answers"]
    with pytest.raises(DataError, match=r"data\[0\].paragraphs\[0\].qas\[0\] has no 'answers'"):
        read_squad(written(tmp_path, without))
    with pytest.raises(DataError, match="holds no questions"):
        read_squad(written(tmp_path))
