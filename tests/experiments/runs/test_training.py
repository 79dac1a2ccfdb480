"""The training loop: its schedule, its objective, and that a resumed training is the undisturbed one."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bayesattn.experiments.methods.variational_attention import AttentionMethod
from bayesattn.experiments.runs import RunFolder, configure, run
from bayesattn.experiments.runs.checkpoints import Checkpoints, Interrupted
from bayesattn.experiments.runs.training import seed_of, share, triangle
from bayesattn.experiments.tasks.batching import by_length
from bayesattn.objective import Elbo

SMALL = {"hidden": 8, "feedforward": 8}


class Stop(Exception):
    """In place of a Ctrl-C."""


def stop_after(epochs: int) -> Any:
    seen = []

    def on_epoch(line: dict[str, Any]) -> None:
        seen.append(line)
        if len(seen) == epochs:
            raise Stop

    return on_epoch


@pytest.mark.parametrize(
    ("method", "stop"), [("attn-dirichlet-dd", 3), ("mc-dropout", 1), ("ensemble", 5), ("ensemble", 4)]
)
def test_a_stopped_run_ends_with_the_result_of_an_undisturbed_one(method: str, stop: int, tmp_path: Path) -> None:
    options = {"members": 2} if method == "ensemble" else None
    config = configure(
        "toy-m1", method, training={"epochs": 4, "samples": 3}, task_options=SMALL, method_options=options
    )
    whole = run(config, tmp_path / "whole")
    with pytest.raises(Stop):
        run(config, tmp_path / "stopped", checkpoint_seconds=0.0, on_epoch=stop_after(stop))
    seen: list[dict[str, Any]] = []
    torch.manual_seed(99)  # whatever the state of the generator is
    resumed = run(config, tmp_path / "stopped", on_epoch=seen.append)
    assert len(seen) == 4 * config.make_method().members - stop
    assert resumed["metrics"] == whole["metrics"]
    folders = [RunFolder.of(tmp_path / name, config) for name in ("whole", "stopped")]
    first, second = (folder.read_model() for folder in folders)
    assert all(torch.equal(first[key], second[key]) for key in first)
    histories = [
        [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()] for folder in folders
    ]
    for history in histories:
        for line in history:
            line.pop("seconds")
    assert histories[0] == histories[1]
    assert not (folders[1].path / "checkpoint.pt").exists()


@pytest.mark.parametrize("method", ["attn-dirichlet-dd", "mc-dropout", "swag", "ensemble"])
def test_a_run_that_is_interrupted_within_its_epochs_ends_with_the_result_of_an_undisturbed_one(
    method: str, tmp_path: Path
) -> None:
    options = {"members": 2} if method == "ensemble" else None
    training = {"epochs": 4, "samples": 3, "batch_size": 300}
    config = configure("toy-m1", method, training=training, task_options=SMALL, method_options=options)
    whole = run(config, tmp_path / "whole")
    folder = RunFolder.of(tmp_path / "interrupted", config)
    within = []
    while folder.result() is None:
        asked = iter([False, True])
        torch.manual_seed(len(within))  # whatever the state of the generator is
        with contextlib.suppress(Interrupted):
            run(config, tmp_path / "interrupted", stop_if=lambda asked=asked: next(asked))
        within.append("within" in (folder.read_checkpoint() or {}))
    assert len(within) > 3
    assert any(within)
    assert folder.result()["metrics"] == whole["metrics"]
    undisturbed = RunFolder.of(tmp_path / "whole", config)
    first, second = undisturbed.read_model(), folder.read_model()
    assert all(torch.equal(first[key], second[key]) for key in first)
    histories = [[{**line, "seconds": None} for line in each.history()] for each in (undisturbed, folder)]
    assert histories[0] == histories[1]


def test_checkpoints_within_an_epoch_take_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("bayesattn.experiments.runs.checkpoints.time.monotonic", lambda: clock[0])
    folder = RunFolder(tmp_path)
    kept = []

    def write(state: dict[str, Any]) -> None:
        clock[0] += 2.0  # a large model
        kept.append(clock[0])

    monkeypatch.setattr(folder, "write_checkpoint", write)
    checkpoints = Checkpoints(folder, seconds=10.0)
    while clock[0] < 1000:
        clock[0] += 1.0
        checkpoints.after_batch(dict)
    assert kept[0] == 12.0, "the first after as many seconds as were asked for"
    assert 2.0 * len(kept) <= 0.025 * clock[0]


def test_members_of_an_ensemble_differ_and_the_first_is_maximum_likelihoods(tmp_path: Path) -> None:
    training = {"epochs": 2}
    one = configure("toy-m1", "mle", training=training, task_options=SMALL)
    many = configure("toy-m1", "ensemble", training=training, task_options=SMALL, method_options={"members": 2})
    for config in (one, many):
        run(config, tmp_path)
    single, members = (RunFolder.of(tmp_path, config).read_model() for config in (one, many))
    assert all(torch.equal(members[key], value) for key, value in single.items())
    assert not torch.equal(members["0.head.weight"], members["1.head.weight"])


def test_one_epoch_is_adam_on_the_objective(tmp_path: Path) -> None:
    """The loop against the same steps written out."""
    config = configure(
        "toy-m1", "mle", training={"epochs": 1, "batch_size": 300, "warmup": 0.0, "samples": 1}, task_options=SMALL
    )
    run(config, tmp_path)
    task = config.make_task()
    torch.manual_seed(seed_of(0, 0, "start"))
    model = task.build(0.0)
    optimiser = torch.optim.Adam(model.parameters())
    train = task.load().train
    order = torch.randperm(800, generator=torch.Generator().manual_seed(seed_of(0, 0, 0)))
    for step, index in enumerate(order.split(300)):
        optimiser.param_groups[0]["lr"] = 3e-3 * (1 - step / 3)
        optimiser.zero_grad()
        task.nll(model, tuple(tensor[index] for tensor in train)).mean().backward()
        optimiser.step()
    fitted = RunFolder.of(tmp_path, config).read_model()
    for key, value in model.state_dict().items():
        torch.testing.assert_close(fitted[f"0.{key}"], value)


def test_the_kls_weight_is_annealed_by_minibatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BAM, algorithm 1: λ = sigmoid(ρ t) with t the minibatch, through all epochs; counted by epoch it would hardly leave 0.5."""
    config = configure(
        "toy-m1", "bam-wc", training={"epochs": 2, "train_share": 0.1, "batch_size": 20}, method_options={"kl_rho": 0.3}
    )
    weights: list[float] = []
    objective = AttentionMethod.objective

    def watched(*arguments: Any) -> Elbo:
        found = objective(*arguments)
        weights.append(found.kl_weight)
        return found

    monkeypatch.setattr(AttentionMethod, "objective", watched)
    run(config, tmp_path)
    assert len(weights) >= 6
    assert len(weights) % 2 == 0
    assert weights == pytest.approx([1 / (1 + math.exp(-0.3 * t)) for t in range(len(weights))])


def test_the_learning_rate_rises_and_falls() -> None:
    factors = [triangle(step, 100, 0.1) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9] == 1
    assert factors[55] == pytest.approx(0.5)
    assert factors[99] == pytest.approx(1 / 90)
    assert triangle(0, 10, 0.0) == 1


def test_a_share_of_the_examples_is_the_same_every_time_and_keeps_pairs() -> None:
    numbers = torch.arange(100)
    first, double = share((numbers, 2 * numbers), 0.25)
    assert len(first) == 25
    assert torch.equal(double, 2 * first)
    assert torch.equal(share((numbers,), 0.25)[0], first)
    assert torch.equal(share((numbers,), 1.0)[0], numbers)


def test_seeds_differ() -> None:
    assert len({seed_of(seed, member, epoch) for seed in range(5) for member in range(5) for epoch in range(5)}) == 125


@pytest.mark.parametrize(
    ("task", "plain", "method", "options"),
    [
        ("toy-m1", "mle", "ensemble", {"members": 2}),
        ("blocks", "gat", "ensemble", {"members": 2}),
        ("blocks", "gat", "mc-dropout", {"dropout": 0.6}),
    ],
)
def test_a_model_that_another_run_has_trained_is_taken_over_and_changes_no_figure(
    task: str, plain: str, method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    changes = SMALL if task == "toy-m1" else {"robustness": False}
    common = {"training": {"epochs": 3, "samples": 3}, "task_options": changes}
    config = configure(task, method, method_options=options, **common)
    alone = run(config, tmp_path / "alone")
    assert alone["first_model_taken_over"] is None
    before = run(configure(task, plain, **common), tmp_path / "beside")
    run(configure(task, plain, seed=1, **common), tmp_path / "beside")
    seen: list[dict[str, Any]] = []
    beside = run(config, tmp_path / "beside", on_epoch=seen.append)
    assert len(seen) == 3 * (config.make_method().members - 1)
    assert beside["metrics"] == alone["metrics"]
    name = configure(task, plain, **common).name
    assert beside["first_model_taken_over"] == {"run": name, "commit": before["commit"]}
    assert beside["train_seconds"] >= before["train_seconds"] > 0, "the cost is that of the training, whoever paid"
    folder = RunFolder.of(tmp_path / "beside", config)
    assert [line["epoch"] for line in folder.history()] == [1, 2, 3] * config.make_method().members


def test_another_dropout_or_seed_is_another_training(tmp_path: Path) -> None:
    common = {"training": {"epochs": 2, "samples": 3}, "task_options": {"robustness": False}}
    run(configure("blocks", "gat", **common), tmp_path)
    others = (
        configure("blocks", "mc-dropout", method_options={"dropout": 0.5}, **common),
        configure("blocks", "mc-dropout", seed=1, method_options={"dropout": 0.6}, **common),
        configure("blocks", "bam-no-kl", **common),
    )
    for config in others:
        assert run(config, tmp_path)["first_model_taken_over"] is None


def test_batches_by_length_need_texts_and_have_less_padding(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="by_length=True: toy-m1 has no texts to sort by length"):
        run(configure("toy-m1", "mle", training={"epochs": 1, "by_length": True}, task_options=SMALL), tmp_path)
    task = configure("nvae-toy", "mle").make_task()
    train = task.load().train
    lengths, order = task.lengths(train), torch.randperm(len(train[0]))
    assert lengths is not None
    padding = [
        sum(int((lengths[batch].max() - lengths[batch]).sum()) for batch in batches)
        for batches in (task.batches(train, order, 16), by_length(lengths, order, 16))
    ]
    assert padding[1] < 0.5 * padding[0]


def test_an_ensemble_goes_on_from_a_smaller_one(tmp_path: Path) -> None:
    def result(folder: Path, members: int) -> dict[str, Any]:
        options = {"training": {"epochs": 2, "samples": 2}, "task_options": {"hidden": 8, "feedforward": 8}}
        return run(configure("toy-m1", "ensemble", method_options={"members": members}, **options), folder)

    alone = result(tmp_path / "alone", 3)
    smaller = result(tmp_path / "beside", 2)
    beside = result(tmp_path / "beside", 3)
    assert alone["first_model_taken_over"] is None
    assert beside["first_model_taken_over"]["run"].startswith("toy-m1_ensemble")
    assert beside["metrics"] == alone["metrics"]
    assert smaller["metrics"] != alone["metrics"]
    assert beside["train_seconds"] > smaller["train_seconds"]


def test_a_fused_step_is_the_same_up_to_rounding(tmp_path: Path) -> None:
    plain, fused = (
        run(configure("toy-m1", "mle", training={"epochs": 2, **options}, task_options=SMALL), tmp_path)
        for options in ({}, {"fused": True})
    )
    assert plain["config"] != fused["config"]
    for name, value in plain["metrics"].items():
        assert fused["metrics"][name] == pytest.approx(value, rel=1e-3)
