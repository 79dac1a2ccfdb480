"""VQA's files: joined by question, ten annotators, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.questions import normalised, read_vqa
from helpers.image_files import questions_json


def put(folder: Path, asked: Any, given: Any) -> tuple[Path, Path]:
    paths = folder / "questions.json", folder / "annotations.json"
    for path, content in zip(paths, (asked, given), strict=True):
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return paths


def test_questions_and_annotations_are_joined_by_their_ids(tmp_path: Path) -> None:
    asked, given = questions_json(range(4))
    given["annotations"].reverse()
    given["annotations"][0]["answer_type"] = "yes/no"
    found = read_vqa(*put(tmp_path, asked, given))
    assert found.images == ["3", "2", "1", "0"]
    assert found.answers[0] == ("black",) * 8 + ("blue",) * 2
    assert found.kinds == ["yes-no", "other", "other", "other"]
    assert found.where([True, False, False, True]).images == ["3", "0"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a, g: g["annotations"].pop(),
            "1 of the questions in .*questions.json have no annotation in annotations.json, the first of them question_id 102",
        ),
        (
            lambda a, g: a["questions"].pop(),
            r"annotations.json, annotations\[2\]: question_id 102 is not in questions.json",
        ),
        (
            lambda a, g: g["annotations"][1].update(image_id=9),
            r"annotations\[1\]: question_id 101 is on image 9, in questions.json on image 1",
        ),
        (lambda a, g: a["questions"][1].pop("image_id"), r"questions.json, questions\[1\] has no 'image_id'"),
        (lambda a, g: a["questions"][1].update(question=5), r"questions\[1\]: 'question' must be of type str, not '5'"),
        (lambda a, g: a["questions"].append(a["questions"][0]), r"questions\[3\]: question_id 100 is there twice"),
        (lambda a, g: g["annotations"][0].update(answers=[]), r"annotations\[0\]: question_id 100 has no answers"),
        (lambda a, g: g["annotations"][0]["answers"][3].pop("answer"), r"annotations\[0\], answers has no 'answer'"),
        (lambda a, g: a.pop("questions"), "questions.json must be a JSON object with a list 'questions'"),
        (lambda a, g: a["questions"].insert(0, 3), r"questions\[0\] must be an object, not '3'"),
        (lambda a, g: a["questions"][0].update(image_id=True), r"'image_id' must be of type int, not 'True'"),
        (
            lambda a, g: g["annotations"][0].update(answer_type="maybe"),
            "'answer_type' 'maybe' is none of yes-no, number",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: Any, message: str) -> None:
    asked, given = questions_json(range(3))
    change(asked, given)
    with pytest.raises(DataError, match=message):
        read_vqa(*put(tmp_path, asked, given))


def test_malformed_json_is_named(tmp_path: Path) -> None:
    asked, given = questions_json(range(3))
    paths = put(tmp_path, json.dumps(asked)[:-5], given)
    with pytest.raises(DataError, match=r"questions.json is not JSON: .*line 1 column .*probably truncated"):
        read_vqa(*paths)
    with pytest.raises(DataError, match=r"absent.json was not found"):
        read_vqa(tmp_path / "absent.json", paths[1])


def test_answers_are_compared_as_vqa_does() -> None:
    assert normalised("A cat!") == "cat"
    assert normalised("2.5") == "2.5"
    assert normalised("U.S.") == "us"
    assert normalised("None") == "0"
    assert normalised("black/white") == "black white"
