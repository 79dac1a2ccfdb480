"""Reports of tables, runs and saved models: what they hold, and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bayesattn.experiments.report.model_page import model_page
from bayesattn.experiments.report.page import Page, write_page
from bayesattn.experiments.report.runs_page import runs_page
from bayesattn.experiments.report.table_page import table_page
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tables import results as kept_results
from helpers.saved_models import save_classifier
from helpers.table_cases import RESULTS


def explorer_of(page: Page) -> list[dict]:
    (section,) = [section for section in page.sections if section.title == "What does it look at?"]
    found = re.search(r"<template>(.*?)</template>", section.body)
    assert found is not None
    return json.loads(found[1])


def test_a_table_has_its_reading_and_every_figure_of_its_file(tmp_path: Path) -> None:
    kept_results.write(RESULTS, tmp_path)
    (tmp_path / "thesis-3.11.reading.md").write_text("**Reading**.\n\n- One <thing>\n  goes on.\n- *Another*.\n")
    page = table_page("thesis-3.11", tmp_path)
    assert [section.title for section in page.sections] == ["In words", "M1"]
    assert "<li>One &lt;thing&gt; goes on.</li><li>Another.</li>" in page.sections[0].body
    assert '<td class="ours">−27.00 ± 0.577</td>' in page.sections[1].body
    assert '<td class="difference">−0.910 ± 0.577</td>' in page.sections[1].body


def test_a_table_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no figures of thesis-3\.12: make them with `bayesattn table thesis-3\.12`"
    ):
        table_page("thesis-3.12", tmp_path)


def test_runs_of_images(tmp_path: Path) -> None:
    configs = [
        configure("digits", method, training={"epochs": 1, "samples": 3}, task_options={"hidden": 8, "feedforward": 8})
        for method in ("mle", "bam-wf")
    ]
    for config in configs:
        run(config, tmp_path)
    page = runs_page([tmp_path / config.name for config in configs])
    titles = [section.title for section in page.sections]
    assert titles == [
        "Figures",
        "How did it train?",
        "Is it as right as it is sure?",
        "How sure is it, and of what?",
        "What if it may decline to answer?",
        "What is it sure of, and what not?",
        "What does it look at?",
    ]
    loaded = load_run(tmp_path / configs[1].name)
    assert f"<td>{loaded.result['metrics']['accuracy']:.4f}</td>" in page.sections[0].body
    assert all(name in page.sections[3].body for name in ("rotated", "scrambled", "noise"))
    (model,) = explorer_of(page)  # maximum likelihood has no random attention to look at
    assert model["name"] == "bam-wf"
    assert [len(example["layers"]) for example in model["examples"]] == [2] * 6
    assert model["examples"][0]["image"]["grid"] == [4, 4]
    write_page(page, tmp_path / "report.html")


def test_runs_of_series_show_their_intervals(tmp_path: Path) -> None:
    options = {"training": {"epochs": 1, "samples": 3}, "task_options": {"hidden": 8, "feedforward": 8}}
    config = configure("toy-m1", "attn-gaussian", **options)
    run(config, tmp_path)
    page = runs_page([tmp_path / config.name])
    assert "Do its intervals hold?" in [section.title for section in page.sections]
    (model,) = explorer_of(page)
    assert model["examples"][0]["layers"][0]["queries"] == 24
    other = configure("toy-m2", "mle", **options)
    run(other, tmp_path)
    with pytest.raises(ValueError, match=r"about one task; these runs are of toy-m1, toy-m2"):
        runs_page([tmp_path / config.name, tmp_path / other.name])


@pytest.fixture
def saved_model(tmp_path: Path) -> Path:
    save_classifier(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_on_sentences(saved_model: Path, tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("good film\n\nbad film film\nfilm\n")
    page = model_page(saved_model, sentences)
    assert page.text.startswith("3 sentences")
    (model,) = explorer_of(page)
    names = {tuple(example["names"]) for example in model["examples"]}
    assert ("good", "film") in names
    for example in model["examples"]:
        assert all(layer["keys"] == len(example["names"]) for layer in example["layers"])


def test_sentences_that_cannot_be_read_are_named(saved_model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(ValueError, match=r"empty\.txt holds no sentence: put one on each line"):
        model_page(saved_model, tmp_path / "empty.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe good")
    with pytest.raises(ValueError, match=r"bytes\.txt is not text in UTF-8"):
        model_page(saved_model, tmp_path / "bytes.txt")


def test_a_folder_whose_model_would_be_run_with_made_up_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sentences.txt").write_text("good film")
    for name, message in (
        ("nothing", r"nothing holds no saved model: config\.json is missing\. Write it with model\.save_pretrained"),
        ("tagger", r"tagger holds a BertForTokenClassification, not a text classifier: take a folder"),
        (
            "mute",
            r"mute holds a model without a tokenizer: write the tokenizer beside it with tokenizer\.save_pretrained",
        ),
    ):
        if name == "tagger":
            save_classifier(tmp_path / name, "BertForTokenClassification")
        elif name == "mute":
            save_classifier(tmp_path / name, tokenizer=False)
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            model_page(tmp_path / name, tmp_path / "sentences.txt")
