"""What the image tasks share, on the packaged digits; and MNIST on small files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.data import idx as idx_module
from bayesattn.experiments.data.files import DataFile
from bayesattn.experiments.runs import configure, run
from bayesattn.experiments.tasks import TASKS, cifar10, fashion_mnist, mnist
from bayesattn.experiments.tasks.images import random_split
from helpers.data_files import idx, images, put


def test_figures_of_a_known_prediction() -> None:
    task = TASKS.create("digits")
    splits = task.load()
    inputs, labels = splits.test
    right = torch.nn.functional.one_hot(labels, 10).float() * 20
    unsure = torch.zeros(len(inputs), 10)
    answers = iter([right, unsure, unsure, right])  # test set, rotated, scrambled, noise
    found = task.evaluate(lambda images: ba.CategoricalPrediction(next(answers).unsqueeze(0)), splits).metrics
    assert found["accuracy"] == 1
    assert found["f1"] == 1
    assert found["log_likelihood"] == pytest.approx(0, abs=1e-6)
    assert found["auroc_rotated"] == 1
    assert found["auroc_scrambled"] == 1
    assert found["auroc_noise"] == 0.5


def test_the_surest_and_least_sure_images_are_kept() -> None:
    task = TASKS.create("digits")
    splits = task.load()
    count = len(splits.test[0])
    logits = torch.zeros(count, 10)
    logits[:, 4] = torch.linspace(9, 1, count)  # the first is the surest
    found = task.evaluate(lambda images: ba.CategoricalPrediction(logits[: len(images)].unsqueeze(0)), splits).details
    assert [each["place"] for each in found["lowest_entropy"]] == [0, 1, 2, 3, 4]
    assert [each["place"] for each in found["highest_entropy"]] == [count - 1 - place for place in range(5)]
    assert found["lowest_entropy"][2]["label"] == splits.test[1][2].item()
    assert found["lowest_entropy"][2]["said"] == 4


def test_a_random_split_has_every_example_once() -> None:
    numbers = torch.arange(20)
    (first, double), (second, _) = random_split((numbers, 2 * numbers), 15, seed=3)
    assert sorted([*first.tolist(), *second.tolist()]) == numbers.tolist()
    assert torch.equal(double, 2 * first)
    assert len(first) == 15


def test_the_digits_are_learned(tmp_path: Path) -> None:
    config = configure("digits", "mle", training={"epochs": 12, "learning_rate": 1e-2})
    assert run(config, tmp_path)["metrics"]["accuracy"] > 0.7


def test_mnist_on_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole task, with 600 easy images in place of MNIST: they are learned, and the other sets are told apart."""
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "data"))

    def fake(pair: tuple[DataFile, DataFile], count: int, seed: int) -> tuple[DataFile, DataFile]:
        pixels, labels = images(count, seed)
        return put(tmp_path / "data", pair[0], idx(pixels)), put(tmp_path / "data", pair[1], idx(labels))

    for module in (mnist, idx_module):
        for seed, (name, count) in enumerate(
            {"MNIST_TRAIN": 600, "MNIST_TEST": 50, "FASHION_TEST": 50, "NOTMNIST_TEST": 50}.items()
        ):
            monkeypatch.setattr(module, name, fake(getattr(module, name), count, seed))
    monkeypatch.setattr(mnist, "load_ambiguous_mnist", lambda: torch.full((50, 1, 28, 28), 0.5))
    monkeypatch.setattr(mnist, "random_split", lambda examples, first, seed: random_split(examples, 500, seed))
    config = configure(
        "mnist", "attn-gaussian", training={"epochs": 18, "samples": 2, "batch_size": 50, "learning_rate": 1e-2}
    )
    config = replace(config, task_options=replace(config.task_options, hidden=16, feedforward=32, test_examples=40))
    metrics = run(config, tmp_path / "runs")["metrics"]
    assert metrics["accuracy"] > 0.9
    assert metrics["auroc_fashion"] == pytest.approx(0.5, abs=0.2)  # images of the same kind
    assert set(metrics) == {
        "log_likelihood",
        "accuracy",
        "f1",
        "ece",
        "auroc_fashion",
        "auroc_notmnist",
        "auroc_ambiguous",
    }


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fashion-MNIST, CIFAR-10 and what is outside them: ten kinds of stripes, and noise."""
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BAYESATTN_DATA_CHECK", "off")
    pairs = (idx_module.FASHION_TRAIN, idx_module.FASHION_TEST, idx_module.MNIST_TEST, idx_module.NOTMNIST_TEST)
    for seed, (pair, count) in enumerate(zip(pairs, (600, 60, 50, 50), strict=True)):
        pixels, labels = images(count, seed)
        pixels = torch.randint(0, 256, pixels.shape, dtype=torch.uint8) if seed > 1 else pixels
        put(tmp_path / "data", pair[0], idx(pixels))
        put(tmp_path / "data", pair[1], idx(labels))
    monkeypatch.setattr(fashion_mnist, "load_usps", lambda: torch.rand(30, 1, 28, 28))

    def cifar(file: DataFile) -> tuple[torch.Tensor, torch.Tensor]:
        pixels, labels = images(400 if "train" in file.path else 60, 0)
        colours = pixels.float().div(255).unsqueeze(1).expand(-1, 3, -1, -1)
        return torch.nn.functional.pad(colours, (2, 2, 2, 2)), labels.long()

    monkeypatch.setattr(cifar10, "load_cifar10", cifar)
    monkeypatch.setattr(cifar10, "load_others", lambda file: torch.rand(40, 3, 32, 32))
    return tmp_path


@pytest.mark.slow
def test_fashion_mnist_on_small_files(small_data: Path) -> None:
    config = configure(
        "fashion-mnist",
        "packed",
        training={"epochs": 8, "batch_size": 50, "learning_rate": 1e-2},
        task_options={"hidden": 16, "feedforward": 32, "heads": 2},
        method_options={"members": 2},
    )
    found = run(config, small_data / "runs")["metrics"]
    assert found["accuracy"] > 0.8
    for name in ("mnist", "notmnist", "usps"):
        assert found[f"auroc_{name}_distance"] > 0.9  # noise


@pytest.mark.slow
def test_cifar10_on_small_files(small_data: Path) -> None:
    config = configure(
        "cifar10",
        "mle",
        training={"epochs": 20, "batch_size": 40, "learning_rate": 5e-3},
        task_options={"hidden": 16, "feedforward": 32, "heads": 2, "depth": 1, "corrupted_examples": 30},
    )
    found = run(config, small_data / "runs")["metrics"]
    assert found["accuracy"] > 0.8
    assert found["auroc_svhn_distance"] > 0.9
    assert found["nll_corrupted_5"] > found["nll_corrupted_1"]
    assert {f"ece_corrupted_{strength}" for strength in range(1, 6)} <= set(found)


def test_digits_with_every_score(tmp_path: Path) -> None:
    config = configure("digits", "mle", training={"epochs": 2}, task_options={"knowing": True, "hidden": 8})
    found = run(config, tmp_path)["metrics"]
    assert {"nll_t", "aurc", "auroc_rotated_energy", "auroc_noise_distance", "predict_seconds"} <= set(found)
    assert configure("digits", "mle").name == configure("digits", "mle", task_options={"knowing": False}).name
