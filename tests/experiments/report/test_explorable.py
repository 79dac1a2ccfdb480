"""What the live page asks: the numbers are those of the library, and what cannot be explored is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import bayesattn as ba
from bayesattn.experiments.report import explorable as explorable_module
from bayesattn.experiments.report.explorable import TEST, ImageRun, TextModel, explorable
from bayesattn.experiments.runs import RunFolder, configure, load_run, run
from bayesattn.huggingface import from_pretrained
from helpers.saved_models import save_classifier


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "classifier"
    save_classifier(folder, max_position_embeddings=8, initializer_range=0.5)
    return folder


@pytest.fixture(scope="module")
def run_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of digits, by method, and one of a series."""
    parent = tmp_path_factory.mktemp("runs")
    options: dict[str, Any] = {
        "training": {"epochs": 1, "samples": 3, "train_share": 0.1},
        "task_options": {"hidden": 8, "feedforward": 8},
    }
    configs = {method: configure("digits", method, **options) for method in ("bam-wf", "mle")}
    configs["series"] = configure("toy-m1", "mle", **options)
    for config in configs.values():
        run(config, parent)
    return {name: parent / config.name for name, config in configs.items()}


def test_a_text_is_answered_as_predict_does_and_shown_as_attention_weights_are(text_folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    subject = explorable(text_folder)
    assert isinstance(subject, TextModel)
    answered = subject.look("good film bad", 5)
    model = from_pretrained(transformers.AutoModelForSequenceClassification, text_folder).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(text_folder)(["good film bad"], return_tensors="pt")
    expected = ba.predict(model, inputs, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(answered.prediction.samples, expected.samples)
    layers = ba.attention_weights(model, inputs, 5, generator=torch.Generator().manual_seed(0))
    assert answered.explored is not None
    assert answered.explored.portrait.names == ("good", "film", "bad")
    assert list(answered.explored.layers) == list(layers)
    for name, weights in layers.items():
        assert torch.equal(answered.explored.layers[name].samples, weights.samples[:, 0])
    assert torch.equal(subject.look("good film bad", 5).prediction.samples, expected.samples)
    assert answered.remarks == ()
    assert subject.classes == ("LABEL_0", "LABEL_1")


def test_what_is_not_read_or_not_shown_is_said(text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = TextModel(text_folder)
    answered = subject.look("good " * 11, 3)
    assert answered.remarks == ("Only the first 8 of 11 tokens were read: the model takes no more.",)
    with pytest.raises(ValueError, match=r"Type a sentence\."):
        subject.look("  ", 3)
    monkeypatch.setattr(explorable_module, "LARGEST", 100)  # of 2 layers x 2 heads x 8 x 8 weights
    answered = subject.look("good " * 8, 3)
    assert answered.explored is None
    assert answered.remarks == ("The attention of 8 tokens in 4 heads is too much for a page: take a shorter text.",)


def test_a_calibration_in_the_folder_decides_samples_and_prediction(text_folder: Path, tmp_path: Path) -> None:
    model = save_classifier(tmp_path, initializer_range=0.5).eval()
    tokens = torch.randint(2, 5, (200, 4))
    held_out = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.randint(2, (200,))}
    knowing = ba.calibrate(model, held_out, samples=6)
    knowing.save(tmp_path)
    subject = TextModel(tmp_path)
    assert (subject.samples, subject.why_fixed) == (6, "the calibration is for so many")
    answered = subject.look("good film", 6)
    inputs = dict(subject.tokenizer(["good film"], return_tensors="pt"))
    expected = knowing.predict(inputs, generator=torch.Generator().manual_seed(0))
    assert torch.equal(answered.prediction.samples, expected.samples)
    assert torch.equal(answered.prediction.outlier, expected.outlier)  # pyright: ignore[reportAttributeAccessIssue]
    (tmp_path / "other").mkdir()
    save_classifier(tmp_path / "other", num_hidden_layers=1)
    knowing.save(tmp_path / "other")
    with pytest.raises(ValueError, match="load the model that was calibrated, or calibrate this one"):
        TextModel(tmp_path / "other")


def test_an_image_is_answered_as_the_run_does(run_folders: dict[str, Path]) -> None:
    subject = explorable(run_folders["bam-wf"])
    assert isinstance(subject, ImageRun)
    loaded = load_run(run_folders["bam-wf"])
    images, labels = loaded.task.load().test
    image, right = subject.example(TEST, 4)
    assert torch.equal(image, images[3:4])
    assert right == (f"Right is {int(labels[3])}.",)
    answered = subject.look(image, 7, right)
    torch.manual_seed(0)
    expected = loaded.predict(images[3:4], 7)
    assert torch.equal(answered.prediction.samples, expected.samples)
    layers = ba.attention_weights(loaded.models[0], image, 7, generator=torch.Generator().manual_seed(0))
    assert answered.explored is not None
    for name, weights in layers.items():
        assert torch.equal(answered.explored.layers[name].samples, weights.samples[:, 0])
    turned, where = subject.example("rotated", 1)
    assert torch.equal(turned, images[:1].rot90(1, dims=(2, 3)))
    assert where == ("From outside: rotated.",)
    with pytest.raises(ValueError, match=rf"There is no image 0 in test set: take 1 to {len(images)}\."):
        subject.example(TEST, 0)


def test_a_model_without_random_attention_says_so(run_folders: dict[str, Path]) -> None:
    subject = ImageRun(run_folders["mle"])
    assert (subject.samples, subject.why_fixed) == (1, "mle decides it")
    answered = subject.look(*subject.example(TEST, 1)[:1], 1)
    assert answered.explored is None
    assert answered.remarks == ("Its attention is not random, so there is nothing to explore in it.",)
    assert len(answered.prediction.samples) == 1


def test_a_dropped_picture_becomes_an_image_of_the_task(run_folders: dict[str, Path]) -> None:
    subject = ImageRun(run_folders["bam-wf"])
    values = torch.arange(64, dtype=torch.uint8).view(8, 8) * 4
    exact = Image.frombytes("L", (8, 8), bytes(values.flatten().tolist()))
    assert torch.equal(subject.fitted(exact)[0, 0], values / 255)
    assert torch.equal(subject.fitted(exact, inverted=True)[0, 0], 1 - values / 255)
    wide = Image.new("RGB", (16, 8), "red")
    wide.paste(exact.convert("RGB"), (4, 0))
    assert torch.equal(subject.fitted(wide)[0, 0], values / 255)  # the square in the middle, and grey
    large = exact.resize((64, 64), Image.Resampling.BOX)
    assert (subject.fitted(large)[0, 0] - values / 255).abs().max() < 0.06


def test_what_cannot_be_explored_is_refused_in_words(run_folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"model=.*missing is no folder: name the folder of a finished run, or one"
    ):
        explorable(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"holds neither a finished run \(result\.json\) nor a saved model"):
        explorable(tmp_path)
    RunFolder(tmp_path / "begun").write_config(load_run(run_folders["mle"]).config)
    with pytest.raises(ValueError, match=r"begun holds neither .*let `bayesattn run` finish it"):
        explorable(tmp_path / "begun")
    with pytest.raises(
        ValueError, match=r"is a run of toy-m1, whose inputs can be neither typed nor dropped: take a run of an image"
    ):
        explorable(run_folders["series"])
    save_classifier(tmp_path / "mute", tokenizer=False)
    with pytest.raises(
        FileNotFoundError, match=r"mute holds a model without a tokenizer: write the tokenizer beside it"
    ):
        explorable(tmp_path / "mute")
    for name, config in (
        ("values", {"num_labels": 1}),
        ("bernoulli", {"problem_type": "multi_label_classification"}),
    ):
        save_classifier(tmp_path / name, **config)
        with pytest.raises(
            ValueError, match=rf"has outputs that are {name} .*explore shows models that choose one of several"
        ):
            explorable(tmp_path / name)
