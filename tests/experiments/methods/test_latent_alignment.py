"""The objectives as methods: their options arrive, the warm start ends, a stopped run goes on as it would have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.alignment import OBJECTIVES, Relaxed
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.models.seq2seq import Seq2Seq
from bayesattn.experiments.runs import RunConfig, configure, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.multi30k import Multi30kTask
from bayesattn.scopes.recording import add_local
from helpers.parallel_corpus import SMALL, put_corpus


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_corpus(tmp_path, Multi30kTask, monkeypatch, train=40)


def small(method: str, **options: object) -> RunConfig:
    return configure("multi30k", method, task_options=SMALL, method_options=options)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_a_method_and_has_its_papers_defaults(name: str) -> None:
    config = small(name)
    model = config.make_method().build(config.make_task())
    assert isinstance(model, Seq2Seq)
    assert repr(model.objective) == repr(ba.alignment.objective_by_name(name))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("marginal", {"chunk": 7}),
        ("hard-sampled", {"samples": 3, "baseline": "none"}),
        ("variational-sampled", {"train_baseline": True}),
        ("gumbel", {"temperature": 0.7}),
        ("importance", {"samples": 3, "gradient": "wake"}),
    ],
)
def test_options_reach_the_objective(name: str, options: dict[str, object]) -> None:
    config = small(name, **options)
    model = config.make_method().build(config.make_task())
    for option, value in options.items():
        assert getattr(model.objective, option) == value


def test_options_that_cannot_act_are_refused_at_once(unchecked: None) -> None:
    with pytest.raises(ValueError, match="at least 2, got 1"):
        small("importance", samples=1).make_method()
    with pytest.raises(ValueError, match=r"warm_start must lie in \[0, 1\], got 2"):
        small("relaxed", warm_start=2.0)


def test_the_loss_is_the_elbo_with_the_methods_kl_weight() -> None:
    one = torch.ones(2)
    with ba.record() as latents:
        add_local(torch.tensor([2.0, 4.0]), elements=one, rows=one, tokens=one, source=nn.Identity())
    nll = torch.tensor([10.0, 20.0])
    for name, weight, expected in (("variational-enumerated", 1.0, 18.0), ("variational-sampled", 0.5, 16.5)):
        method = METHODS.create(name, small(name, kl_weight=weight).method_options)
        assert method.objective(nll, latents, Progress(3, 10), 40).loss.item() == pytest.approx(expected)
    annealed = small("relaxed", kl_anneal=0.6).make_method()
    assert annealed.objective(nll, latents, Progress(3, 10), 40).loss.item() == pytest.approx(16.5)


def test_the_warm_start_is_a_share_of_the_training() -> None:
    config = small("relaxed", warm_start=0.5, test_samples=3)
    method = config.make_method()
    model = method.build(config.make_task())
    found = []
    for progress in (0.0, 0.49, 0.5, 0.9):
        method.start_epoch(model, progress)
        assert isinstance(model.objective, Relaxed)
        assert model.objective.test_samples == 3
        found.append(model.objective.warm_start)
    assert found == [True, True, False, False]


def test_in_the_warm_start_every_parameter_has_a_gradient_and_that_of_the_posterior_is_zero() -> None:
    config = small("relaxed")
    method, task = config.make_method(), config.make_task()
    model = method.build(task)
    assert isinstance(model, Seq2Seq)
    assert model.inference is not None
    method.start_epoch(model, 0.0)
    with ba.record() as latents:
        nll = task.nll(model, tuple(each[:4] for each in task.load().train))
    method.objective(nll, latents, Progress(0, 10), 40).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all((parameter.grad == 0).all() for parameter in model.inference.parameters())


def test_a_run_stopped_in_the_warm_start_goes_on_as_it_would_have(tmp_path: Path) -> None:
    training = {"epochs": 3, "batch_size": 20}
    config = configure("multi30k", "relaxed", training=training, task_options=SMALL)
    undisturbed = run(config, tmp_path / "whole")

    def stop(line: dict[str, object]) -> None:
        if line["epoch"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "stopped", checkpoint_seconds=0.0, on_epoch=stop)
    result = run(config, tmp_path / "stopped", checkpoint_seconds=0.0)
    assert result["metrics"] == undisturbed["metrics"]
    assert result["seconds_per_step"] > 0


def test_a_task_without_alignments_says_so() -> None:
    config = configure("toy-m1", "marginal")
    with pytest.raises(
        ValueError, match="ToyTask has no latent alignment to train by Marginal: take a task of translation"
    ):
        config.make_method().build(TASKS.create("toy-m1"))


def test_bam_is_a_line(tmp_path: Path) -> None:
    """The task's own model with BAM's posterior: no inference network, one small network of the prior."""
    config = small("bam-wc", k=5.0)
    model = config.make_method().build(config.make_task())
    assert isinstance(model, Seq2Seq)
    assert model.objective is None
    assert isinstance(model.decoder.posterior, ba.Weibull)
    soft = small("soft").make_method().build(config.make_task())
    count = [sum(parameter.numel() for parameter in each.parameters()) for each in (soft, model)]
    assert count[0] < count[1] < count[0] + 200
