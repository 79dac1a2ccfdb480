"""Visual questions: figures by hand, data made ready, runs on small files of the published formats."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from scipy import stats
from torchmetrics.functional.classification import multiclass_calibration_error

import bayesattn as ba
from bayesattn.experiments.data import daquar as daquar_data
from bayesattn.experiments.data import easy_vqa as easy_data
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.models.vqa import BottomUpVQA
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks import TASKS, daquar, easy_vqa
from bayesattn.experiments.tasks.classification import calibration_error
from bayesattn.experiments.tasks.visual_questions import (
    NOBODY,
    PointAnswers,
    QuestionTask,
    answer_accuracy,
    answer_figures,
    mean_nll,
)
from helpers.data_files import put
from helpers.image_files import SHADES, archive, put_vqa

TINY = {"dim": 16, "heads": 2, "layers": 1, "embedding_dim": 8, "noise": (1.0,), "validation_share": 0.2}


def logits(probabilities: list[list[float]]) -> torch.Tensor:
    return torch.tensor(probabilities).log().unsqueeze(0)


def test_figures_by_hand() -> None:
    """Four questions, ten annotators, of whom 4, 2, 0 and 1 agree with what is said; sure, unsure, sure, unsure."""
    answers = torch.full((4, 10), NOBODY)
    answers[0, :4] = 0
    answers[1, :2] = 0
    answers[1, 2] = 1
    answers[2, :] = 1
    answers[3, 0] = 0
    point = ba.CategoricalPrediction(logits([[0.8, 0.2]] * 4))
    sure, unsure = torch.tensor([3.0, 0.0]), torch.tensor([0.1, 0.0])
    rows = torch.stack([sure, unsure, sure, unsure])
    noise = torch.zeros(6, 4, 2)
    noise[:, [1, 3], 0] = torch.tensor([3.0, -3.0] * 3).unsqueeze(1)
    noise[:, :, 1] += torch.tensor([0.01, -0.01] * 3).unsqueeze(1)
    sampled = ba.CategoricalPrediction(rows + noise)
    found = answer_figures(point, sampled, answers, ["number", "other", "other", "number"])
    accuracy = [1.0, 2 / 3, 0.0, 1 / 3]
    assert found["accuracy"] == pytest.approx(sum(accuracy) / 4)
    assert found["accuracy_number"] == pytest.approx((1 + 1 / 3) / 2)
    assert found["accuracy_other"] == pytest.approx((2 / 3 + 0) / 2)
    # n_ac = 1 + 0, n_iu = 1/3 + 2/3, of 4
    assert found["pavpu"] == pytest.approx((1.0 + 0.0 + 1 / 3 + 2 / 3) / 4)
    assert found["pavpu_number"] == pytest.approx((1.0 + 2 / 3) / 2)
    assert found["pavpu_other"] == pytest.approx((0.0 + 1 / 3) / 2)


def test_the_papers_two_sample_test_on_probabilities_stands_beside_the_paired_one() -> None:
    """Two answers that rise and fall together: their difference is sure, and small beside how much each of them varies."""
    together = torch.tensor([3.0, 0.0] * 3)
    samples = torch.stack([together, together - 0.05, torch.zeros(6)], -1).unsqueeze(1)
    sampled = ba.CategoricalPrediction(samples)
    found = answer_figures(sampled, sampled, torch.zeros(1, 1, dtype=torch.long), ["other"])
    probabilities = samples[:, 0].double().softmax(-1).numpy()
    assert stats.ttest_ind(probabilities[:, 0], probabilities[:, 1], equal_var=False).pvalue > 0.05
    assert found["accuracy"] == 1.0
    assert found["pavpu"] == 1.0, "right and certain"
    assert found["pavpu_two_sample"] == 0.0, "right and uncertain"


def test_the_likelihood_is_that_of_a_random_annotator() -> None:
    log_probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    answers = torch.tensor([[0, 0, 1, NOBODY], [NOBODY] * 4])
    expected = -(2 * log_probabilities[0, 0] + log_probabilities[0, 1]) / 3
    torch.testing.assert_close(mean_nll(log_probabilities, answers), torch.stack([expected, torch.zeros(())]))


def test_one_annotator_is_right_or_wrong() -> None:
    assert answer_accuracy(torch.tensor([2, 0, 0]), torch.tensor([[2], [1], [NOBODY]])).tolist() == [1, 0, 0]


def test_calibration_error_is_torchmetrics_where_that_has_one() -> None:
    probabilities = torch.randn(300, 4).mul(2).softmax(-1)
    labels = torch.randint(4, (300,))
    confidence, chosen = probabilities.max(-1)
    wanted = multiclass_calibration_error(probabilities, labels, 4, n_bins=15).item()
    assert calibration_error(confidence, (chosen == labels).float()) == pytest.approx(wanted, abs=1e-6)
    assert calibration_error(torch.tensor([0.9, 0.5]), torch.tensor([0.4, 0.5])) == pytest.approx(0.25)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache"))
    put_vqa(tmp_path / "mine", range(60), range(60, 90))
    return tmp_path / "mine"


def make(data: Path, **changes: object) -> QuestionTask:
    options = replace(TASKS.entry("vqa2").options, **(TINY | {"data": str(data), "least_answers": 1} | changes))
    task = TASKS.create("vqa2", options)
    assert isinstance(task, QuestionTask)
    return task


def test_published_files_made_ready(published: Path) -> None:
    prepared = make(published).prepared
    assert set(prepared.answers) == {*SHADES, "blue"}
    images, words, answers = prepared.splits.train
    assert (len(images), len(prepared.splits.validation[0]), len(prepared.splits.test[0])) == (48, 12, 30)
    assert not set(images.tolist()) & set(prepared.splits.validation[0].tolist()), "no image trains and validates"
    assert answers.shape[1] == 10
    assert prepared.words.decode(words[0].tolist()) == ["what", "shade", "is", "it"]
    spread = make(published, test_examples=7).prepared.splits.test[0]
    assert spread.tolist() == prepared.splits.test[0][[0, 4, 8, 12, 17, 21, 25]].tolist(), "at equal distances"
    assert len(make(published, test_examples=40).prepared.splits.test[0]) == 30
    features, mask = prepared.regions.of(images)
    torch.testing.assert_close(features[mask].mean(0), torch.zeros(4), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("method", "model"),
    [
        pytest.param("soft", "mcan", marks=pytest.mark.slow),
        ("bam-wc", "mcan"),
        ("variational-sampled", "bottom-up"),
        ("relaxed", "bottom-up"),
    ],
)
def test_a_run_on_published_files_learns_the_shades(published: Path, tmp_path: Path, method: str, model: str) -> None:
    training = {"epochs": 12, "samples": 3, "batch_size": 12, "learning_rate": 1e-2}
    options = TINY | {"data": str(published), "least_answers": 1, "model": model}
    config = configure("vqa2", method, training=training, task_options=options)
    result = run(config, tmp_path / "runs")
    found = result["metrics"]
    assert found["accuracy"] > 0.8
    assert found["accuracy"] == found["accuracy_other"]
    assert 0.4 < found["nll"] < 1.2  # of ten annotators two say something else: at best 0.5
    assert ("prior_entropy" in found) == (model == "bottom-up")
    assert {"accuracy_noise_1", "pavpu_noise_1", "nll_noise_1", "ece_noise_1"} <= set(found)
    loaded = load_run(tmp_path / "runs" / config.name)
    images, words, answers = loaded.task.load().test
    again = loaded.method.point_estimate(loaded.models, loaded.task, (images, words))
    assert answer_accuracy(again.label, answers).mean().item() == pytest.approx(found["accuracy"], abs=1e-6)


def test_the_prior_entropy_is_that_of_the_regions_before_the_answer(published: Path) -> None:
    """Table 3, right, of Deng et al.; MCAN has no one alignment, and no such figure."""
    task = make(published, model="bottom-up", fusion="concatenation")
    images, words, _ = task.load().test
    model = task.build_with(ba.alignment.Variational(), 0.0).eval()
    assert isinstance(model, BottomUpVQA)
    point = task.predict(model, (images, words), 1, point_estimate=True)
    assert isinstance(point, PointAnswers)
    with torch.no_grad():
        prior, _ = model.alignments(
            *task.prepared.regions.of(images), words, torch.zeros(len(images), dtype=torch.long)
        )
    expected = torch.stack([torch.distributions.Categorical(row[row > 0]).entropy() for row in prior])
    torch.testing.assert_close(point.prior_entropy, expected)
    assert not isinstance(task.predict(model, (images, words), 1), PointAnswers)
    mcan = make(published)
    assert not isinstance(mcan.predict(mcan.build(0.0), (images, words), 1, point_estimate=True), PointAnswers)


@pytest.mark.parametrize("model", ["mcan", "bottom-up"])
def test_words_start_at_glove_s_vectors_where_a_file_is_given(published: Path, tmp_path: Path, model: str) -> None:
    file = tmp_path / "glove.txt"
    file.write_text("shade" + " 0.5" * 8 + "\nelephant" + " 1" * 8 + "\n")
    task = make(published, model=model, glove=str(file))
    torch.manual_seed(0)
    embedding = task.build(0.0).question.embedding.weight
    torch.manual_seed(0)
    plain = make(published, model=model).build(0.0).question.embedding.weight
    (shade,) = task.prepared.words.encode(["shade"])
    assert (embedding[shade] == 0.5).all()
    others = [place for place in range(len(embedding)) if place != shade]
    assert torch.equal(embedding[others], plain[others])
    with pytest.raises(DataError, match=r"line 1: expected a word and 16 numbers, got 8 .* Set embedding_dim"):
        make(published, model=model, glove=str(file), embedding_dim=16).build(0.0)


def test_an_objective_needs_the_bottom_up_model(published: Path) -> None:
    with pytest.raises(ValueError, match=r"has no one alignment to train by Marginal: add --model bottom-up"):
        make(published).build_with(ba.alignment.Marginal(), 0.0)


def test_noise_is_the_same_for_all_samples(published: Path) -> None:
    task = make(published)
    model = task.build(0.0).eval()
    images, words, _ = task.load().test
    with pytest.warns(UserWarning, match="nothing in it is random"):
        noisy = task.predict(model, (images, words, torch.full((30,), 5.0)), 4)
    assert torch.equal(noisy.samples[0], noisy.samples[3])
    clean = task.predict(model, (images, words), 1)
    assert not torch.allclose(noisy.samples[0], clean.samples[0])
    torch.testing.assert_close(task.predict(model, (images, words, torch.zeros(30)), 1).samples, clean.samples)


def test_files_that_do_not_match_are_named(published: Path, tmp_path: Path) -> None:
    path = published / "v2_OpenEnded_mscoco_train2014_questions.json"
    content = json.loads(path.read_text())
    annotations = published / "v2_mscoco_train2014_annotations.json"
    given = json.loads(annotations.read_text())
    content["questions"][5]["image_id"] = given["annotations"][5]["image_id"] = 777
    path.write_text(json.dumps(content))
    annotations.write_text(json.dumps(given))
    with pytest.raises(
        DataError,
        match=r"1 of the .* images of the questions have no features in .*features.tsv: 777. The ids there are such as 0, 1, 2",
    ):
        make(published).load()
    path.unlink()
    with pytest.raises(
        DataError,
        match=r"v2_OpenEnded_mscoco_train2014_questions.json was not found. Get it from https://visualqa.org.*--data",
    ):
        make(published).load()


def test_daquar_is_split_by_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    lines = ["question,answer,image_id"]
    for image in range(1, 9):
        lines += [
            f"what is left,chair,image{image}",
            f"how many,{image},image{image}",
            f'what is there,"lamp, bed",image{image}',
        ]
    _put_daquar(tmp_path, monkeypatch, lines)
    train, test, regions = daquar_data.load_daquar()
    assert (len(train), len(test)) == (12, 4)
    assert not set(train.images) & set(test.images)
    assert set(train.kinds) == {"other", "number"}
    assert regions.ids[0] == "image1"
    train, _, _ = daquar_data.load_daquar("first")
    assert len(train) == 18
    assert ("lamp",) in train.answers
    _put_daquar(tmp_path, monkeypatch, [*lines, "what,chair,image77"])
    with pytest.raises(DataError, match=r"data.csv.gz, line 26: image77 is in none of the two lists"):
        daquar_data.load_daquar()
    _put_daquar(tmp_path, monkeypatch, [*lines, ",chair,image1"])
    with pytest.raises(DataError, match=r"line 26 has no question"):
        daquar_data.load_daquar()
    _put_daquar(tmp_path, monkeypatch, lines, test="image6\nimage7\nimage8")
    with pytest.raises(DataError, match=r"share images, such as image6"):
        daquar_data.load_daquar()


def _put_daquar(folder: Path, patch: pytest.MonkeyPatch, lines: list[str], test: str = "image7\nimage8") -> None:
    numpy.savez(folder / "made.npz", **archive(torch.randn(8, 4, 3).half(), [f"image{i}" for i in range(1, 9)]))
    contents = {
        "QUESTIONS": "\n".join(lines).encode(),
        "TRAIN_IMAGES": b"\n".join(b"image%d" % i for i in range(1, 7)),
        "TEST_IMAGES": test.encode(),
        "FEATURES": (folder / "made.npz").read_bytes(),
    }
    for name, content in contents.items():
        patch.setattr(daquar_data, name, put(folder, getattr(daquar_data, name), content))


def test_easy_vqa_cuts_images_into_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.arange(4 * 4 * 3).view(1, 4, 4, 3).float()
    cut = easy_data.patches(images, 2)
    torch.testing.assert_close(cut[0, 1, :12].view(2, 2, 3), images[0, :2, 2:])
    torch.testing.assert_close(cut[0, 2, :12].view(2, 2, 3), images[0, 2:, :2])
    assert cut[0, :, 12:].tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    with pytest.raises(ValueError, match="patch=3 does not divide images of 4 x 4 pixels"):
        easy_data.patches(images, 3)
    put_easy(tmp_path, monkeypatch)
    train, test, regions = easy_data.load_easy_vqa(2)
    assert (len(train), len(test), regions.most, regions.dim) == (40, 10, 4, 14)
    assert test.images[3] == "test3"
    assert set(train.kinds) == {"other"}
    put_easy(tmp_path, monkeypatch, entry=["what colour is it?", "red", 99])
    with pytest.raises(DataError, match=r"train_questions.json, question 40 is on image 99, but there are 40 images"):
        easy_data.load_easy_vqa(2)
    put_easy(tmp_path, monkeypatch, entry=["what colour is it?", "red", True])
    with pytest.raises(DataError, match=r"train_questions.json.gz, entry 40 must be \[question, answer, image id\]"):
        easy_data.load_easy_vqa(2)
    put_easy(tmp_path, monkeypatch, entry=["what colour is it?", "red"])
    with pytest.raises(DataError, match=r"train_questions.json.gz, entry 40 must be \[question, answer, image id\]"):
        easy_data.load_easy_vqa(2)


def put_easy(folder: Path, patch: pytest.MonkeyPatch, entry: list[object] | None = None) -> None:
    """Images of one colour, and a question on each."""
    patch.setenv("BAYESATTN_DATA", str(folder))
    files = {}
    for part, count in (("train", 40), ("test", 10)):
        pixels = numpy.zeros((count, 4, 4, 3), dtype="uint8")
        pixels[numpy.arange(count), :, :, numpy.arange(count) % 3] = 255
        numpy.savez(folder / "made.npz", images=pixels)
        asked = [["what colour is it?", ("red", "green", "blue")[i % 3], i] for i in range(count)]
        if entry and part == "train":
            asked.append(entry)
        for name, content in (
            (f"{part}_images.npz", (folder / "made.npz").read_bytes()),
            (f"{part}_questions.json", json.dumps(asked).encode()),
        ):
            files[name] = put(folder, easy_data.FILES[name], content)
    patch.setattr(easy_data, "FILES", files)


def test_easy_vqa_shows_its_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_easy(tmp_path, monkeypatch)
    task = TASKS.create("easy-vqa", easy_vqa.EasyVQAOptions(patch=2))
    assert isinstance(task, QuestionTask)
    picture = task.picture("test4")
    assert picture is not None
    assert picture[0, 0].tolist() == [0, 1, 0]
    assert daquar.DaquarTask(daquar.DaquarOptions()).picture("image1") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "mcam"}, "model='mcam' is not known. Did you mean 'mcan'"),
        ({"noise": (0.0,)}, "noise must be a finite number above 0, got 0.0"),
        ({"validation_share": 0.0}, "validation_share must be a finite number above 0"),
        ({"least_answers": 1000}, "least_answers=1000 leaves 0 of 4 answers"),
    ],
)
def test_wrong_options_are_answered(published: Path, unchecked: None, changes: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, DataError), match=message):
        make(published, **changes).load()
