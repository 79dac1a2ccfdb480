"""Captions: data made ready, figures, runs on small files of the published formats."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest
import torch

from bayesattn.experiments.data import flickr8k as flickr_data
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.subwords import PAD, UNKNOWN
from bayesattn.experiments.models.captioner import Captioner
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.captioning import CaptionTask, Described
from bayesattn.experiments.tasks.coco import CocoOptions
from helpers.data_files import put
from helpers.image_files import archive, put_coco

TINY = {"dim": 16, "dropout": 0.1, "least": 1, "noise": (1.0,)}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache"))
    put_coco(tmp_path / "mine", range(60))
    return tmp_path / "mine"


def make(data: Path, **changes: object) -> CaptionTask:
    task = TASKS.create("coco", CocoOptions(**(TINY | {"data": str(data)} | changes)))  # pyright: ignore
    assert isinstance(task, CaptionTask)
    return task


def test_published_files_made_ready(published: Path) -> None:
    prepared = make(published).prepared
    images, captions = prepared.splits.train
    assert (len(images), len(prepared.splits.validation[0]), len(prepared.splits.test[0])) == (96, 12, 12)
    assert images[0] == images[1], "one example for each caption"
    assert prepared.words.decode(captions[1].tolist())[1:4] == ["the", "picture", "is"]
    assert len(make(published, test_examples=2).prepared.test) == 2
    short = make(published, longest_caption=2).prepared.splits
    assert int((short.train[1] != PAD).sum(1).max()) == 4
    assert int((short.test[1] != PAD).sum(1).max()) == 6, "the test is whole"
    assert len(make(published, least=40).prepared.words) < len(prepared.words)


def test_captions_are_of_known_words(published: Path) -> None:
    """Also where the model would write none but the unknown one."""
    task = make(published)
    model = task.build(0.0).eval()
    assert isinstance(model, Captioner)
    with torch.no_grad():
        model.vocabulary.bias[UNKNOWN] = 100.0
    regions, mask = task.prepared.regions.of(torch.tensor([0]))
    assert set(model.caption(regions, mask, width=1, max_length=4).best()[0]) == {UNKNOWN}
    described = task.predict(model, (torch.arange(5),), 1)
    for width in (1, 3):
        assert not any(UNKNOWN in caption for caption in described.captions(width, 4))


def test_figures_are_those_of_their_definitions(published: Path) -> None:
    task = make(published)
    model = task.build(0.0).eval()
    splits = task.load()
    images, captions = splits.test
    described = task.predict(model, (images,), 1)
    with torch.no_grad():
        losses = model(*task.prepared.regions.of(images), captions)
    tokens = (captions[:, 1:] != PAD).sum()
    assert described.perplexity(captions) == pytest.approx(math.exp(losses.sum() / tokens), rel=1e-5)
    one = Described(model, task.prepared.regions, images[3:4]).captions(3, 5)  # pyright: ignore
    assert described.captions(3, 5)[3] == one[0]
    assert all(len(caption) <= 5 for caption in described.captions(1, 5))


@pytest.mark.parametrize("method", ["soft", pytest.param("hard-sampled", marks=pytest.mark.slow), "bam-wc"])
def test_a_run_on_published_files_learns_to_describe(published: Path, tmp_path: Path, method: str) -> None:
    training = {"epochs": 25, "batch_size": 16, "learning_rate": 1e-2}
    config = configure("coco", method, training=training, task_options=TINY | {"data": str(published)})
    result = run(config, tmp_path / "runs")
    found = result["metrics"]
    assert found["bleu_1"] > 90
    assert found["perplexity"] < 2.0  # two captions for each image: at best sqrt[4.5](2) = 1.17
    assert {"cider_d_greedy", "rouge_l_noise_1", "bleu_4_noise_1"} <= set(found)
    assert result["details"]["captions"][0]["image"] == "1"
    loaded = load_run(tmp_path / "runs" / config.name)
    images, captions = loaded.task.load().test
    assert loaded.predict((images,)).perplexity(captions) == pytest.approx(found["perplexity"], rel=1e-5)


def test_methods_that_cannot_describe_are_refused(published: Path, tmp_path: Path) -> None:
    config = configure("coco", "ensemble", task_options=TINY | {"data": str(published)})
    with pytest.raises(ValueError, match="coco is predicted by one model without noise, which ensemble is not"):
        run(config, tmp_path / "runs")
    config = configure("coco", "marginal", task_options=TINY | {"data": str(published)})
    with pytest.raises(ValueError, match="needs all alignments of a word"):
        run(config, tmp_path / "runs")


def test_missing_published_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=r"coco/dataset_coco.json was not found. Get it from https://cs.stanford.edu.*--data"
    ):
        TASKS.create("coco").load()


def test_flickr8k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(lines: list[str], test: str = "c.jpg") -> None:
        numpy.savez(tmp_path / "made.npz", **archive(torch.randn(3, 4, 3).half(), ["a.jpg", "b.jpg", "c.jpg"]))
        monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
        monkeypatch.setattr(flickr_data, "CAPTIONS", put(tmp_path, flickr_data.CAPTIONS, "\n".join(lines).encode()))
        features = put(tmp_path, flickr_data.FEATURES, (tmp_path / "made.npz").read_bytes())
        monkeypatch.setattr(flickr_data, "FEATURES", features)
        images = {"train": "a.jpg", "validation": "b.jpg", "test": test}
        lists = {part: put(tmp_path, flickr_data.LISTS[part], name.encode()) for part, name in images.items()}
        monkeypatch.setattr(flickr_data, "LISTS", lists)

    lines = ["a.jpg#0\tA Dog 's ball .", "a.jpg#1\tThe dog !", "b.jpg#0\tA cat", "c.jpg#0\tTwo t-shirts ,"]
    prepare(lines)
    parts, regions = flickr_data.load_flickr8k()
    assert parts["train"].captions == [[["a", "dog", "'s", "ball"], ["the", "dog"]]]
    assert parts["test"].captions == [[["two", "t-shirts"]]]
    assert regions.ids == ("a.jpg", "b.jpg", "c.jpg")
    prepare(lines, test="d.jpg")
    with pytest.raises(DataError, match=r"Flickr_8k.testImages.txt.gz, line 1: d.jpg has no captions"):
        flickr_data.load_flickr8k()
    prepare([*lines, "d.jpg A dog"])
    with pytest.raises(DataError, match=r"Flickr8k.token.txt.gz, line 5 is not .*: 'd.jpg A dog'"):
        flickr_data.load_flickr8k()
