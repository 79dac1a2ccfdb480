"""Runs in bfloat16 agree with those in float32; what must be float32 is; denormal numbers are zero and nothing else changes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch

from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.runs import RunFolder, configure, run
from bayesattn.experiments.runs.checkpoints import Interrupted
from bayesattn.experiments.runs.precision import InBfloat16, denormals_are_zero
from bayesattn.scopes.recording import record

SMALL = {"hidden": 8, "feedforward": 8}


def test_the_name_of_a_run_in_float32_is_what_it_was() -> None:
    """That of a run of the commit before there was a precision."""
    name = configure("toy-m1", "mle", training={"epochs": 2}, task_options=SMALL).name
    assert name == "toy-m1_mle_seed0_cfaa020291"
    assert configure("toy-m1", "mle", training={"epochs": 2, "precision": "bf16"}, task_options=SMALL).name != name


@pytest.mark.parametrize("method", ["mle", "bam-wc", "attn-dirichlet"])
def test_losses_in_bfloat16_are_those_of_float32_up_to_its_rounding(method: str, tmp_path: Path) -> None:
    histories = {}
    for precision in ("float32", "bf16"):
        training = {"epochs": 2, "samples": 2, "precision": precision}
        config = configure("toy-m1", method, training=training, task_options=SMALL)
        run(config, tmp_path)
        folder = RunFolder.of(tmp_path, config)
        histories[precision] = [line["loss"] for line in folder.history()]
        assert {value.dtype for value in folder.read_model().values() if value.is_floating_point()} == {torch.float32}
    assert histories["bf16"] == pytest.approx(histories["float32"], rel=1e-2)
    assert histories["bf16"] != histories["float32"]


@pytest.mark.parametrize("method", ["bam-wc", "bam-lc", "attn-dirichlet-dd", "attn-gaussian"])
@pytest.mark.parametrize("examples", [4, 80])
def test_what_the_loss_is_made_of_is_float32_and_the_products_are_not(method: str, examples: int) -> None:
    """Few examples go through plain torch, many through the kernels."""
    config = configure("toy-m1", method, task_options=SMALL)
    task = config.make_task()
    model = config.make_method().build(task).train()
    seen, kls = [], []
    model.head.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    for precise in (model, InBfloat16(model)):
        torch.manual_seed(0)
        with record() as latents:
            nll = task.nll(precise, tuple(tensor[:examples] for tensor in task.load().train))
        objective = config.make_method().objective(nll, latents, Progress(1, 2), 800)
        assert nll.dtype == objective.local_kl.dtype == objective.loss.dtype == torch.float32
        kls.append(objective.local_kl.item())
    assert seen == [torch.float32, torch.bfloat16]
    assert kls[1] == pytest.approx(kls[0], rel=2e-2)
    objective.loss.backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    assert all(each.dtype == torch.float32 and each.isfinite().all() for each in gradients)


def test_a_run_in_bfloat16_that_is_interrupted_ends_with_the_result_of_an_undisturbed_one(tmp_path: Path) -> None:
    training = {"epochs": 2, "samples": 2, "batch_size": 200, "precision": "bf16"}
    config = configure("toy-m1", "bam-wc", training=training, task_options=SMALL)
    whole = run(config, tmp_path / "whole")
    folder = RunFolder.of(tmp_path / "interrupted", config)
    while folder.result() is None:
        asked = iter([False, False, True])
        with contextlib.suppress(Interrupted):
            run(config, tmp_path / "interrupted", stop_if=lambda asked=asked: next(asked))
    assert folder.result()["metrics"] == whole["metrics"]


def test_denormal_numbers_are_zero_in_the_block_and_no_other_number_changes() -> None:
    numbers = torch.logspace(-44, 30, 2000)
    plain = numbers * 3.0
    with denormals_are_zero():
        flushed = numbers * 3.0
        assert (torch.full((1,), 1e-38) * 1e-2).item() == 0.0
    normal = numbers >= torch.finfo(torch.float32).tiny
    assert torch.equal(flushed[normal], plain[normal])
    assert (flushed[~normal & (plain < torch.finfo(torch.float32).tiny)] == 0).all()
    assert (torch.full((1,), 1e-38) * 1e-2).item() > 0.0, "and after it they are what they were"


def test_a_run_without_denormal_numbers_is_the_run_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("toy-m1", "bam-wc", training={"epochs": 2, "samples": 2}, task_options=SMALL)
    flushed = run(config, tmp_path / "flushed")
    monkeypatch.setattr("bayesattn.experiments.runs.single.denormals_are_zero", contextlib.nullcontext)
    assert run(config, tmp_path / "plain")["metrics"] == flushed["metrics"]
