"""M5's constants: which of them maximum likelihood has the thesis's three figures with.

The thesis prints the recursion of M5 and neither its N (waves), nor its K (window), nor its noise.
"""

from __future__ import annotations

import math
import statistics
from itertools import product
from pathlib import Path
from typing import Any

from bayesattn.experiments.analysis.paper_figures.base import Places, add
from bayesattn.experiments.runs import configure
from bayesattn.experiments.tables import TABLES

TRIED = ((1, 2, 3), (2, 3, 5))
"""N and K."""
FIGURES = {"log_likelihood": "log_likelihood", "var_mse": "var_mse_given_last", "mse": "mse"}
"""The thesis's figures and ours."""


def try_constants(places: Places) -> list[Path]:
    """Maximum likelihood with all of `TRIED`, the paper's 100 epochs, seed 0, beside the thesis's figures."""
    published = TABLES["thesis-3.11"].published()
    thesis = {theirs: published["M5", theirs, "mle"].value for theirs in FIGURES}
    configs = [
        configure("toy-m5", "mle", task_options={"waves": waves, "window": window}) for waves, window in product(*TRIED)
    ]
    tried = []
    for config, result in zip(configs, places.results_of(configs), strict=True):
        ours = {name: result["metrics"][name] for name in (*FIGURES.values(), "var_mse")}
        constants = {"waves": config.task_options.waves, "window": config.task_options.window}
        floor = config.make_task().floor()
        tried.append(constants | {"mle": ours, "floor": floor, "distance": distance(ours, thesis)})
    tried.sort(key=lambda each: each["distance"])
    data = {"epochs": 100, "seed": 0, "sigma²": 0.5, "thesis": thesis, "tried, nearest first": tried}
    return [places.keep("thesis-m5", data)]


def distance(ours: dict[str, Any], thesis: dict[str, float]) -> float:
    """Root mean square of the three figures' differences, each in units of the thesis's figure."""
    return math.sqrt(
        statistics.fmean(((ours[name] - thesis[theirs]) / thesis[theirs]) ** 2 for theirs, name in FIGURES.items())
    )


add(
    "thesis-m5",
    "Maximum likelihood on M5 by its constants, which the thesis does not state (tables 3.1, 3.11)",
    try_constants,
)
