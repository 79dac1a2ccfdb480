"""Weight-space methods: what is random, what is trained, and that a loaded run predicts as it did."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.methods.weight_space import LaplaceOptions, MeanField, MeanFieldOptions
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.weight_space.laplace import FullPosterior, LinearisedNetwork
from bayesattn.weight_space.layers import WeightPosterior

TASK = TASKS.create("toy-m1")
FAMILIES = ("gaussian", "laplace", "logistic", "cauchy", "student")
SMALL = {"hidden": 8, "feedforward": 8}


def random_parameters(model: torch.nn.Module) -> set[str]:
    found = (name for name, module in model.named_modules() if isinstance(module, WeightPosterior))
    return {name.replace(".weight_posteriors", "").replace("weight_posteriors.", "") for name in found}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_network_or_its_attention_is_random(family: str) -> None:
    plain = {name for name, _ in TASK.build(0.0).named_parameters()}
    whole, attention = (METHODS.create(f"vi-{family}{suffix}").build(TASK) for suffix in ("", "@attention"))
    assert random_parameters(whole) == plain
    assert random_parameters(attention) == {name for name in plain if "self_attn" in name}
    assert {m.family.name for m in whole.modules() if isinstance(m, WeightPosterior)} == {family}


def test_the_objective_is_the_elbo_of_the_whole_data_set() -> None:
    method = METHODS.create("vi-gaussian", MeanFieldOptions(kl_weight=0.5))
    model = method.build(TASK)
    batch = tuple(tensor[:4] for tensor in TASK.load().train)
    with ba.record() as latents:
        nll = TASK.nll(model, batch)
    loss = method.objective(nll, latents, Progress(3, 10), dataset_size=800).loss
    torch.testing.assert_close(loss, nll.mean() + 0.5 * latents.global_kl / 800)


def test_priors_are_named_by_the_options(tmp_path: Path) -> None:
    def prior(**options: object) -> object:
        method = METHODS.create("vi-gaussian", MeanFieldOptions(**options))  # pyright: ignore[reportArgumentType]
        assert isinstance(method, MeanField)
        return method.prior(TASK)

    assert prior(prior_scale=0.3) == ba.weight_space.WeightPrior("gaussian", 0.3)
    assert prior(prior="thesis") == ba.weight_space.thesis_priors("M1")
    assert prior(prior="fitted") == ba.weight_space.fitted_priors("M1")
    ba.weight_space.save_priors({"*": ba.weight_space.WeightPrior("laplace", 0.2)}, tmp_path / "priors.json")
    assert prior(prior=str(tmp_path / "priors.json")) == {"*": ba.weight_space.WeightPrior("laplace", 0.2)}
    improved = METHODS.create("vi-gaussian-improved")
    assert isinstance(improved, MeanField)
    assert improved.prior(TASK) == ba.weight_space.thesis_priors("M1")
    with pytest.raises(ValueError, match="no priors prior='thesis' for this task"):
        improved.prior(TASKS.create("digits"))


def test_swag_collects_late_and_at_a_constant_rate() -> None:
    method = METHODS.create("swag")
    assert [method.learning_rate(0.9, progress) for progress in (0.0, 0.59, 0.6, 0.99)] == [0.9, 0.9, 0.3, 0.3]
    model = method.build(TASK)
    for epoch in range(1, 11):
        method.after_epoch(model, epoch / 10)
    assert model.swag_count == 4  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("name", "rank"), [("laplace", None), ("laplace-final", 2 * 64 + 2), ("laplace@attention", 5 * 4)]
)
def test_laplace_is_of_the_layers_that_its_name_says(name: str, rank: int | None) -> None:
    method = METHODS.create(name)
    model = method.build(TASK)
    method.finish(model, TASK, tuple(tensor[: 5 if "@" in name else 40] for tensor in TASK.load().train))
    assert isinstance(model, LinearisedNetwork)
    posterior = model.laplace_posterior
    assert isinstance(posterior, FullPosterior) == (rank is not None)
    expected = sum(p.numel() for p in TASK.build(0.0).parameters()) if rank is None else rank
    assert len(posterior.eigenvalues()) == expected


@pytest.mark.parametrize("name", ["vi-student@attention", "concrete-dropout", "laplace-final", "swag"])
def test_a_run_is_loaded_and_predicts_as_it_did(name: str, tmp_path: Path) -> None:
    config = configure(
        "toy-m1", name, training={"epochs": 5 if name == "swag" else 2, "samples": 3}, task_options=SMALL
    )
    result = run(config, tmp_path)
    loaded = load_run(tmp_path / config.name)
    inputs, targets = loaded.task.load().test
    from bayesattn.experiments.runs.training import seed_of

    torch.manual_seed(seed_of(0, "evaluation", 0))
    log_likelihood = loaded.predict(inputs).log_prob(targets).sum(1).mean().item()
    assert log_likelihood == pytest.approx(result["metrics"]["log_likelihood"], rel=1e-4)
    assert (loaded.predict(inputs).samples.std(0) > 0).any()


def test_options_that_cannot_be_are_refused() -> None:
    options = dataclasses.replace(LaplaceOptions(), prior_precision=-1.0)
    model = METHODS.create("laplace").build(TASK)
    with pytest.raises(ValueError, match="prior_precision must be a finite number above 0"):
        METHODS.create("laplace", options).finish(model, TASK, tuple(tensor[:2] for tensor in TASK.load().train))
