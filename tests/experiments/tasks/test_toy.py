"""The toy tasks: figures of a known prediction, the floor, and no look into the future with any attention method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.data.toy import PROCESSES, truth
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs import configure, run
from bayesattn.experiments.tasks import TASKS

TOYS = [f"toy-{name}" for name in PROCESSES]
ATTENTION = [entry.name for entry in METHODS if entry.name.startswith(("attn-", "bam-"))]


def true_prediction(name: str, test: torch.Tensor) -> ba.GaussianPrediction:
    """The law of a Gaussian process as a prediction of one sample."""
    true = truth(PROCESSES[name.removeprefix("toy-")](), test)
    return ba.GaussianPrediction(true.mean.unsqueeze(0), true.variance.sqrt().unsqueeze(0))


@pytest.mark.parametrize("name", [name for name in TOYS if name != "toy-m2"])  # m2's law is no Gaussian
def test_the_true_law_reaches_the_floor_and_no_gap(name: str) -> None:
    task = TASKS.create(name)
    splits = task.load()
    test = torch.cat([splits.test[0][:, :1], splits.test[1]], 1)
    figures = task.evaluate(lambda inputs: true_prediction(name, test), splits).metrics
    floor = task.floor()
    assert floor is not None
    assert figures["gap_to_floor"] == pytest.approx(0, abs=1e-4)
    assert figures["var_mse"] == pytest.approx(0, abs=1e-9)
    assert {key: figures[key] for key in floor} == pytest.approx(floor, rel=1e-5, abs=1e-9)


def test_the_thesis_variance_error_knows_the_last_value_alone() -> None:
    """The true law of M4 has no error given the whole past, and one given X_t: the window's spread, unseen."""
    floors = [TASKS.create(name).floor() for name in ("toy-m3", "toy-m4")]
    assert floors[0] is not None
    assert floors[1] is not None
    assert floors[0]["var_mse_given_last"] == floors[0]["var_mse"] == 0
    assert floors[1]["var_mse"] == 0
    assert floors[1]["var_mse_given_last"] > 0.02


def test_other_constants_of_m5_are_another_run_and_the_inferred_ones_the_same_as_ever() -> None:
    assert configure("toy-m5", "mle").name == "toy-m5_mle_seed0_f30df0284a"
    options = {"waves": 2, "window": 3}
    assert configure("toy-m5", "mle", task_options=options).name != configure("toy-m5", "mle").name
    floor = configure("toy-m5", "mle", task_options=options).make_task().floor()
    assert floor is not None
    assert floor["mse"] == pytest.approx(2 * (2 * 1 + 22 * 0.5) / 24, abs=0.08), "two values start it, not four"


@pytest.mark.parametrize(("name", "perfect"), [("toy-m1", 1.0), ("toy-m2", 0.648), ("toy-m3", 1.0), ("toy-m4", 1.167)])
def test_the_perfect_mse_is_twice_the_variance(name: str, perfect: float) -> None:
    floor = TASKS.create(name).floor()
    assert floor is not None
    assert floor["mse"] == pytest.approx(perfect, abs=0.06)  # 80 sequences


def test_a_prediction_that_has_seen_the_future_is_found_out() -> None:
    task = TASKS.create("toy-m3")
    splits = task.load()
    leak = splits.test[1].unsqueeze(0)
    figures = task.evaluate(lambda inputs: ba.GaussianPrediction(leak, torch.full_like(leak, 0.3)), splits).metrics
    assert figures["gap_to_floor"] < -5 * figures["gap_to_floor_se"]


def test_the_nll_is_that_of_a_normal_distribution() -> None:
    task = TASKS.create("toy-m1")
    model = task.build(0.0).eval()
    inputs, targets = (tensor[:5] for tensor in task.load().train)
    mean, scale = model(inputs)
    expected = -torch.distributions.Normal(mean, scale).log_prob(targets).sum(1)
    torch.testing.assert_close(task.nll(model, (inputs, targets)), expected)


@pytest.mark.parametrize("method", ATTENTION)
def test_no_attention_method_looks_into_the_future(method: str) -> None:
    """Exactly: no gradient from a prediction to later values, also at the thesis's start, where its float32 draws leaked."""
    task = TASKS.create("toy-m1")
    options: Any = METHODS.entry(method).options
    if "dirichlet" in method:
        options = type(options)(initial_sharpness=0.000911)
    model = METHODS.create(method, options).build(task)
    inputs = task.load().train[0][:3].clone().requires_grad_()
    mean, scale = model(inputs)
    (gradient,) = torch.autograd.grad((mean + scale)[:, :10].sum(), inputs)
    assert gradient[:, 10:].eq(0).all()
    assert gradient[:, :10].ne(0).any()


IN_SHORT = ("attn-gaussian", "attn-dirichlet", "bam-wc", "bam-lc")  # a method of each posterior


@pytest.mark.parametrize(
    "method", [name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.slow) for name in ATTENTION]
)
def test_no_attention_method_beats_the_floor(method: str, tmp_path: Path) -> None:
    config = configure(
        "toy-m3",
        method,
        training={"epochs": 8, "samples": 10, "batch_size": 100, "learning_rate": 1e-2},
        task_options={"hidden": 16, "feedforward": 32},
    )
    metrics = run(config, tmp_path)["metrics"]
    assert metrics["gap_to_floor"] > -2 * metrics["gap_to_floor_se"]
    assert metrics["gap_to_floor"] < 3  # it has learned: an untrained model is 10 or more away
