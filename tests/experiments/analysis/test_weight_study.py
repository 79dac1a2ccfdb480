"""The study of weights, from runs to a preset that mean_field accepts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import bayesattn as ba
import bayesattn_command
from bayesattn.experiments.analysis.weight_study import collect_weights, priors_of_study, study, study_configs
from bayesattn.experiments.commands import study as command
from bayesattn.experiments.runs import run
from bayesattn.experiments.tasks import TASKS


def made_up() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "head.weight": random.laplace(scale=0.2, size=(40, 8, 64)),
        "head.bias": random.normal(scale=0.5, size=(40, 8)),
        "norm.weight": np.ones((40, 16)),
        "zero.bias": np.zeros((40, 4)),
    }


def test_a_layer_is_described() -> None:
    (layer,) = study(made_up())
    assert (layer.name, layer.runs, layer.weights) == ("head.weight", 40, 40 * 8 * 64)
    assert layer.best_by_likelihood == "laplace"
    assert layer.scale == pytest.approx(0.2 * 2**0.5, rel=0.05)
    assert layer.off_diagonal == pytest.approx(layer.off_diagonal_isotropic, rel=0.2)


def test_queries_keys_and_values_are_studied_each() -> None:
    random = np.random.default_rng(0)
    scales = np.repeat([0.1, 0.2, 0.4], 8)[None, :, None]  # one below the other
    weights = {"encoder.layers.0.self_attn.in_proj_weight": random.normal(size=(30, 24, 8)) * scales}
    layers = {layer.name.rpartition(".")[2]: layer for layer in study(weights)}
    assert {name: round(layer.scale, 2) for name, layer in layers.items() if name != "in_proj_weight"} == {
        "query": 0.1,
        "key": 0.2,
        "value": 0.4,
    }
    assert set(priors_of_study(weights, list(layers.values()))) == set(weights), "the parameter is one"


def test_covariances_of_weights_stand_out_from_those_of_independent_ones() -> None:
    random = np.random.default_rng(0)
    shared = random.normal(size=(200, 1, 1))
    independent = random.normal(size=(200, 4, 8))
    (alone,) = study({"head.weight": 0.3 * independent})
    (together,) = study({"head.weight": 0.3 * (independent + shared) / 2**0.5})
    assert alone.covariances.spread == pytest.approx(alone.covariances.spread_isotropic, rel=0.15)
    assert alone.covariances.spread_isotropic == pytest.approx(200**-0.5, rel=0.1)
    off = together.covariances.matrix[~np.eye(32, dtype=bool)]
    assert off.mean() == pytest.approx(0.5, abs=0.1), "half of each weight's variance is shared"
    assert together.to_json()["covariance_spread_isotropic"] == together.covariances.spread_isotropic


def test_the_fitted_priors() -> None:
    weights = made_up()
    priors = priors_of_study(weights, study(weights))
    assert priors["head.weight"].family == "laplace"
    assert priors["head.weight"].scale == pytest.approx(0.2, rel=0.05)
    assert priors["head.bias"].scale == pytest.approx(0.5, rel=0.1)
    assert priors["norm.weight"] == ba.weight_space.WeightPrior("gaussian", 1.0)
    assert priors["zero.bias"].scale == 1e-4


def studied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """`bayesattn study toy-m1` of two short runs; the weights that it studied."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    configs = study_configs("toy-m1", 2, {"epochs": 1})
    for config in configs:  # what the sweep would run in processes of their own
        run(config, folder / "runs")
    monkeypatch.setattr(sys, "argv", ["bayesattn", "study", "toy-m1", "--runs", "2", "--epochs", "1"])
    bayesattn_command.main()
    return collect_weights(configs, folder / "runs")


def test_the_command_writes_table_figures_and_priors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(  # a figure has a panel for each layer: draw one
        command, "collect_weights", lambda *which: {"head.weight": collect_weights(*which)["head.weight"]}
    )
    weights = studied(tmp_path, monkeypatch)
    assert "head.weight" in capsys.readouterr().out
    folder = tmp_path / "study/toy-m1"
    assert {path.name for path in folder.iterdir()} == {
        "study.json", "priors.json", "densities.png", "quantiles.png", "correlations.png", "covariances.png",
        "covariance_histograms.png",
    }  # fmt: skip
    (head,) = json.loads((folder / "study.json").read_text())["layers"]
    assert head["scale"] == pytest.approx(weights["head.weight"].std(), rel=1e-4)


@pytest.mark.slow
def test_the_priors_of_a_whole_model_are_those_of_mean_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studied(tmp_path, monkeypatch)
    priors = ba.weight_space.load_priors(tmp_path / "study/toy-m1/priors.json")
    model = ba.weight_space.mean_field(TASKS.create("toy-m1").build(0.0), "laplace", priors)
    with ba.record() as latents:
        model(TASKS.create("toy-m1").load().test[0][:2])
    assert latents.global_kl.isfinite()


def test_a_study_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No run of the study has finished"):
        collect_weights(study_configs("toy-m1", 2), tmp_path)


@pytest.mark.parametrize("task", ["toy-m1", "pos"])
def test_the_page_has_the_figures_of_the_study(task: str) -> None:
    docs = Path(__file__).parents[3] / "docs"
    rows = [line for line in (docs / "study.md").read_text().splitlines() if line.startswith("| `")]
    for layer in json.loads((docs / "study" / task / "study.json").read_text())["layers"]:
        names = (layer["best_by_error"], layer["best_by_likelihood"], str(layer["modes"]))
        sizes = (f"{layer['off_diagonal']:.4f}", f"{layer['off_diagonal_isotropic']:.4f}")
        (found,) = [row for row in rows if row.startswith(f"| `{layer['name']}` | {layer['scale']:.3f} |")]
        assert found.endswith("".join(f"| {value} " for value in (*names, *sizes)) + "|")
