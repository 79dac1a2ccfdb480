"""Methods of members and of last layers: their losses, what they leave, and that a loaded run predicts as it did."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import bayesattn as ba
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.methods.members import PackedOptions, SnapshotOptions
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.weight_space import LaplaceHead

DIGITS = TASKS.create("digits")


def test_each_packed_member_has_its_own_loss_and_the_products_are_those_of_one() -> None:
    method = METHODS.create("packed", PackedOptions(members=4))
    model = method.build(DIGITS)
    batch = tuple(tensor[:6] for tensor in DIGITS.load().train)
    nll = method.nll(DIGITS, model, batch)
    images, labels = batch
    each = [F.cross_entropy(logits, labels, reduction="none") for logits in model(images)]
    torch.testing.assert_close(nll, torch.stack(each).mean(0))
    attention = lambda net: sum(p.numel() for n, p in net.named_parameters() if n.endswith("in_proj_weight"))  # noqa: E731
    assert attention(model) == attention(DIGITS.build(0.0))
    model.eval()
    together = method.predict([model], DIGITS, images, samples=1)
    torch.testing.assert_close(together.samples, torch.stack([model.network(i)(images) for i in range(4)]).detach())
    with pytest.raises(ValueError, match="no narrower model to pack"):
        method.build(TASKS.create("toy-m1"))


def test_a_snapshot_is_taken_at_the_end_of_each_cycle() -> None:
    method = METHODS.create("snapshot", SnapshotOptions(snapshots=3))
    model = method.build(DIGITS)
    counts = []
    for epoch in range(6):
        method.after_epoch(model, (epoch + 1) / 6)
        counts.append(int(model.snapshot_count))
    assert counts == [0, 1, 1, 2, 2, 3]
    rates = [method.learning_rate(1.0, step / 60) for step in range(60)]
    assert max(rates[19], rates[39], rates[59]) < 0.02  # the last steps before the snapshots
    other = method.build(DIGITS)
    method.after_epoch(other, 2 / 7)
    with pytest.raises(ValueError, match="ended within an epoch"):
        method.after_epoch(other, 3 / 7)


def test_the_objective_of_a_variational_head_is_the_bound() -> None:
    method = METHODS.create("vbll-head")
    model = method.build(DIGITS)
    batch = tuple(tensor[:6] for tensor in DIGITS.load().train)
    with ba.record() as latents:
        nll = method.nll(DIGITS, model, batch)
    loss = method.objective(nll, latents, Progress(0, 1), dataset_size=100).loss
    torch.testing.assert_close(loss, nll.mean() + latents.local_kl.mean() + latents.global_kl / 100)


@pytest.mark.parametrize(
    "name",
    [
        "packed",
        "laplace-head",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("snapshot", "gp-head", "vbll-head")),
    ],
)
def test_a_loaded_run_predicts_as_it_did(name: str, tmp_path: Path) -> None:
    small = {"hidden": 8, "feedforward": 8}
    options = {"packed": {"members": 2}, "snapshot": {"snapshots": 2}, "gp-head": {"random": 32}}.get(name, {})
    training = {"epochs": 2, "samples": 3, "train_share": 0.1}
    arguments = {"training": training, "task_options": small}
    if name == "laplace-head":  # takes over the model of mle
        run(configure("digits", "mle", **arguments), tmp_path)
    config = configure("digits", name, method_options=options, **arguments)
    result = run(config, tmp_path)
    assert (result["first_model_taken_over"] is not None) == (name == "laplace-head")
    loaded = load_run(tmp_path / config.name)
    images, labels = loaded.task.load().test
    torch.manual_seed(0)
    prediction = loaded.predict(images, samples=64 if name in ("laplace-head", "vbll-head") else None)
    tolerance = 0.1 if name in ("laplace-head", "vbll-head") else 1e-5
    found = prediction.log_prob(labels).mean().item()
    assert found == pytest.approx(result["metrics"]["log_likelihood"], abs=tolerance)
    if name == "laplace-head":
        assert next(module for module in loaded.models[0].modules() if isinstance(module, LaplaceHead)).fitted
