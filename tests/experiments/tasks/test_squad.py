"""Answers as spans: windows and their labels, the likeliest span, no answer, and a run that learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bayesattn.experiments.runs import configure, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.squad import SquadTask, likeliest_span

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "who",
    "what",
    "ran",
    "sat",
    "ann",
    "bob",
    "dog",
    "cat",
    "and",
    ".",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=len(WORDS),
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def article(context: str, question: str, answer: str) -> dict[str, Any]:
    answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
    asked = {"id": "1", "question": question, "answers": answers, "is_impossible": not answer}
    return {"title": "T", "paragraphs": [{"context": context, "qas": [asked]}]}


PEOPLE, ANIMALS = ("Ann", "Bob"), ("dog", "cat")
ARTICLES = [
    article(f"{person} and {animal} {verb}.", question, answer)
    for person in PEOPLE
    for animal in ANIMALS
    for verb in ("ran", "sat")
    for question, answer in ((f"who {verb}", person), (f"what {verb}", animal))
]


def put(folder: Path, version: str, articles: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    for part in ("train", "dev"):
        (folder / f"{part}-v{version}.json").write_text(json.dumps({"version": version, "data": articles}))


def make(version: str, **changes: Any) -> SquadTask:
    task = TASKS.create(f"squad{version}", replace(TASKS.entry(f"squad{version}").options, **changes))
    assert isinstance(task, SquadTask)
    return task


def test_windows_overlap_and_label_the_answer_where_they_have_it(tmp_path: Path, encoder: Path) -> None:
    context = "ann ran . bob sat . dog ran . cat sat ."
    put(tmp_path / "data", "1.1", [article(context, "who sat", "bob")])
    windows = make("1.1", data=str(tmp_path / "data"), model=str(encoder), max_length=11, stride=2).tested
    assert len(windows.question) == 3
    said = []
    for places, (first, last) in zip(windows.places, windows.spans.tolist(), strict=True):
        begin, end = places[first], places[last]
        said.append(context[begin[0] : end[1]] if begin and end else None)
    assert said == ["bob", None, None]
    assert windows.spans[1].tolist() == [0, 0]
    assert windows.inputs[0, 0, 0] == WORDS.index("[CLS]")
    shared = [place for place in windows.places[0] if place in windows.places[1] and place is not None]
    assert len(shared) == 2


def test_the_likeliest_span_ends_after_it_begins_and_is_short() -> None:
    scores = torch.tensor([[0.0, 1.0, 5.0, 2.0], [0.0, 6.0, 1.0, 3.0]])
    assert likeliest_span(scores, [True] * 4) == (8.0, (2, 3))
    assert likeliest_span(scores, [True] * 4, longest=1) == (7.0, (1, 1))
    assert likeliest_span(scores, [True, True, False, True]) == (7.0, (1, 1))
    assert likeliest_span(scores, [False] * 4) == (float("-inf"), None)


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_no_answer_is_said_where_it_is_likelier_in_version_2_alone(tmp_path: Path, encoder: Path, version: str) -> None:
    put(tmp_path / "data", version, ARTICLES[:2])
    task = make(version, data=str(tmp_path / "data"), model=str(encoder), max_length=16, stride=4)
    probabilities = torch.full((2, 2, task.tested.inputs.shape[2]), 0.01)
    probabilities[0, :, 0] = 0.5
    first = task.tested.spans[1]
    probabilities[1, 0, first[0]] = probabilities[1, 1, first[1]] = 0.5
    said = task.answers(probabilities)
    assert said[1] == "dog"
    assert (said[0] == "") == (version == "2.0")


def test_a_run_learns_who_and_what_and_nothing(tmp_path: Path, encoder: Path) -> None:
    nobody = [article("Ann ran.", f"what {verb}", "") for verb in ("ran", "sat")]
    put(tmp_path / "data", "2.0", ARTICLES * 4 + nobody * 8)
    config = configure(
        "squad2.0",
        "bam-wc",
        training={"epochs": 30, "batch_size": 16, "learning_rate": 5e-3, "samples": 3},
        task_options={
            "data": str(tmp_path / "data"),
            "model": str(encoder),
            "max_length": 16,
            "stride": 4,
            "dropout": 0.0,
        },
        method_options={"k": 100.0},
    )
    found = run(config, tmp_path / "runs")["metrics"]
    assert found["exact_match_of_point_estimate"] > 0.9
    assert found["f1"] >= found["exact_match"] > 0.9
    assert found["nll"] < 0.5


def test_windows_must_come_forward(unchecked: None) -> None:
    with pytest.raises(ValueError, match=r"max_length=16 must be more than twice stride=8"):
        make("1.1", max_length=16, stride=8)
