"""Figures 3.1 and 3.11 of the thesis: one test series of M3, and what each method predicts of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

from bayesattn.experiments.analysis.paper_figures.base import Places, add
from bayesattn.experiments.report.plots import save
from bayesattn.experiments.runs import RunConfig, RunFolder, load_run
from bayesattn.experiments.tables import TABLES
from bayesattn.prediction.predictions import GaussianPrediction

matplotlib.use("Agg")

from matplotlib import pyplot

TASK = "toy-m3"
BUDGET = "small"
"""The paper's epochs."""
SERIES = 0
"""Which of the test set's (the thesis does not say which it shows)."""
SHOWN = {
    "3.1": ("vi-cauchy", "concrete-dropout", "vi-laplace", "vi-logistic", "vi-gaussian", "vi-student"),
    "3.11": (
        "attn-gaussian",
        "attn-gaussian-dd",
        "attn-dirichlet-approx",
        "attn-dirichlet-approx-dd",
        "attn-dirichlet",
        "attn-dirichlet-dd",
    ),
}
"""Figure, and table → methods; the caption has maximum likelihood's error."""


def draw_series(places: Places, number: str) -> list[Path]:
    """Seed 0 of each method at the paper's 100 epochs."""
    configs = TABLES[f"thesis-{number}"].configs(BUDGET, seeds=1, tasks=[TASK], methods=["mle", *SHOWN[number]])
    places.results_of(configs)
    predicted = {config.method: prediction_of(config, places.runs) for config in configs}
    truth = configs[0].make_task().load().test[1][SERIES].tolist()
    data = {"task": TASK, "series": SERIES, "values": truth, "methods": predicted}
    return [
        places.keep(f"thesis-series-{number}", data),
        _draw(truth, predicted, SHOWN[number], places.images / "toy-m3" / f"series-{number}.png"),
    ]


def prediction_of(config: RunConfig, runs: Path) -> dict[str, Any]:
    """Mean and standard deviation of a finished run's prediction of each value of the series, and the error of a value drawn from it."""
    run = load_run(RunFolder.of(runs, config).path)
    inputs, targets = (tensor[SERIES : SERIES + 1] for tensor in run.task.load().test)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        prediction = run.predict(inputs)
    assert isinstance(prediction, GaussianPrediction)
    mean, variance = prediction.mean[0].double(), prediction.variance[0].double()
    error = (mean - targets[0].double()).square() + variance
    return {
        "mean": mean.tolist(),
        "sd": variance.sqrt().tolist(),
        "mse": error.mean().item(),
        "mse_of_mean": (error - variance).mean().item(),
    }


def _draw(truth: list[float], predicted: dict[str, Any], methods: tuple[str, ...], path: Path) -> Path:
    rows = -(-len(methods) // 3)
    figure, panels = pyplot.subplots(
        rows, 3, figsize=(11, 2.6 * rows), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    times = np.arange(1, len(truth) + 1)
    for axes, method in zip(panels.flat, methods, strict=False):
        mean, sd = (np.array(predicted[method][name]) for name in ("mean", "sd"))
        axes.fill_between(times, mean - 2 * sd, mean + 2 * sd, alpha=0.25)
        axes.plot(times, mean, label="predicted, ± 2 sd")
        axes.plot(times, truth, "k.", markersize=4, label="the series")
        axes.set_title(f"{method}: MSE {predicted[method]['mse']:.2f}", fontsize="small")
    panels[0, 0].legend(frameon=False, fontsize="x-small")
    figure.supxlabel("time", fontsize="small")
    figure.suptitle(f"Test series {SERIES} of M3; mle: MSE {predicted['mle']['mse']:.2f}", fontsize="small")
    return save(figure, path)


for _number in SHOWN:
    add(
        f"thesis-series-{_number}",
        f"Figure {_number}: a test series of M3, each method's prediction with its band",
        lambda places, number=_number: draw_series(places, number),
    )
