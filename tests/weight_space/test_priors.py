"""Priors of weights, one for all or by group, and as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from scipy import stats

from bayesattn.experiments.tasks import TASKS
from bayesattn.support.configurable import from_config
from bayesattn.weight_space.priors import (
    THESIS_PRIORS,
    WeightPrior,
    fitted_priors,
    load_priors,
    prior_of,
    save_priors,
    thesis_priors,
)


def test_samples_and_density_have_its_scale() -> None:
    prior = WeightPrior("student", 0.2, 6.0)
    assert stats.kstest(prior.sample(torch.empty(100_000)).double().numpy() / 0.2, stats.t(6.0).cdf).pvalue > 1e-3
    w = torch.linspace(-1, 1, 9, dtype=torch.float64)
    torch.testing.assert_close(prior.log_density(w), torch.from_numpy(stats.t(6.0, scale=0.2).logpdf(w.numpy())))


def test_the_first_pattern_that_matches_counts() -> None:
    wide, narrow = WeightPrior(scale=2.0), WeightPrior(scale=0.1)
    assert prior_of({"*norm*": wide, "encoder.*": narrow}, "encoder.norm.weight") is wide
    assert prior_of(narrow, "anything") is narrow
    with pytest.raises(ValueError, match=r"matches the parameter 'head.weight'.*Add one for it, or '\*' as the last"):
        prior_of({"encoder.*": narrow}, "head.weight")


@pytest.mark.parametrize("name", THESIS_PRIORS)
def test_every_parameter_of_its_model_has_an_improved_prior(name: str) -> None:
    task = TASKS.create({"POS": "pos", "MNIST": "mnist"}.get(name, f"toy-{name.lower()}"))
    assert task.weight_priors == name
    from bayesattn.experiments.models.tagger import Tagger

    model = Tagger(50, 17, 40) if name == "POS" else task.build(0.0)  # without the treebank's vocabulary
    found = {key: prior_of(thesis_priors(name), key) for key, _ in model.named_parameters()}
    assert found["positions"] == found["embedding.weight"]
    assert found["encoder.layers.0.norm1.weight"] == WeightPrior("gaussian", 1.0)
    attention = found["encoder.layers.0.self_attn.in_proj_weight"]
    assert attention == found["encoder.layers.0.self_attn.out_proj.bias"] != found["head.weight"]


def test_the_thesis_figures() -> None:
    assert prior_of(thesis_priors("M1"), "head.weight") == WeightPrior("cauchy", 0.6)
    assert prior_of(thesis_priors("M4"), "encoder.layers.0.self_attn.in_proj_weight") == WeightPrior(
        "student", 1e-4, 3.0
    )
    assert prior_of(thesis_priors("MNIST"), "encoder.layers.1.linear2.bias") == WeightPrior("student", 2e-4, 13.0)


def test_presets_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "priors.json"
    save_priors(thesis_priors("M5"), path)
    assert load_priors(path) == thesis_priors("M5")
    assert from_config(WeightPrior("student", 0.2, 6.0).config()) == WeightPrior("student", 0.2, 6.0)
    path.write_text('{"*": {"scale": 1}}')
    with pytest.raises(ValueError, match=r"priors.json is not a preset of priors \(KeyError: 'family'\)"):
        load_priors(path)
    path.write_text('{"*": {"family": "gaussian", "scale": -1.0}}')
    with pytest.raises(ValueError, match=r"priors.json is not a preset of priors .*scale must be a finite number"):
        load_priors(path)


def test_impossible_priors_are_refused() -> None:
    with pytest.raises(ValueError, match="needs its degrees of freedom"):
        WeightPrior("student", 1.0)
    with pytest.raises(ValueError, match="a laplace prior has no degrees of freedom"):
        WeightPrior("laplace", 1.0, df=3.0)
    with pytest.raises(ValueError, match="scale must be a finite number above 0"):
        WeightPrior("gaussian", 0.0)
    with pytest.raises(ValueError, match="Choose one of: 'M1'"):
        thesis_priors("M9")


@pytest.mark.parametrize(("name", "task"), [("M1", "toy-m1"), ("POS", "pos")])
def test_the_fitted_priors_are_those_of_the_study_and_fit_the_model(name: str, task: str) -> None:
    priors = fitted_priors(name)
    study = Path(__file__).parents[2] / "docs/study" / task
    assert priors == load_priors(study / "priors.json")
    if task == "toy-m1":  # the other's vocabulary needs its data
        assert set(priors) == {key for key, _ in TASKS.create(task).build(0.0).named_parameters()}
    for layer in json.loads((study / "study.json").read_text())["layers"]:
        assert priors[layer["name"]].family == layer["best_by_likelihood"]


def test_there_are_fitted_priors_for_two_tasks() -> None:
    with pytest.raises(ValueError, match=r"name='M3' is not known. .* Choose one of: 'M1', 'POS'"):
        fitted_priors("M3")
