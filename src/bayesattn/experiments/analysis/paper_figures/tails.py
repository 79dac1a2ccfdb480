"""Figure 3.4 of the thesis: how heavy the tails of trained weights are, layer by layer, on each data set."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from bayesattn.experiments.analysis.paper_figures.base import Places, add
from bayesattn.experiments.report.plots import save
from bayesattn.support import json_text

matplotlib.use("Agg")

from matplotlib import pyplot

STUDIED = ("toy-m1", "toy-m2", "toy-m3", "toy-m4", "toy-m5", "pos", "mnist")


def draw_tails(places: Places) -> list[Path]:
    """Degrees of freedom of the Student-t that fits each matrix best, from the studies that are there."""
    found: dict[str, dict[str, float]] = {}
    for task in STUDIED:
        path = places.images / task / "study.json"
        if path.exists():
            found[task] = {layer["name"]: layer["df"] for layer in json_text.read(path)["layers"]}
        else:
            places.say(
                f"{task} has no study in {path.parent}: `bayesattn study {task} --output {path.parent}` makes it."
            )
    if not found:
        raise FileNotFoundError(f"There is no study in {places.images}: make one with `bayesattn study TASK`.")
    figure, axes = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    for task, layers in found.items():
        names = [name.removeprefix("encoder.layers.") for name in layers]
        axes.plot(names, list(layers.values()), marker="o", markersize=4, linestyle=":", label=task)
    axes.set(yscale="log", ylabel="degrees of freedom of a Student-t", title="Small: heavy tails; 1,000 is the bound")
    axes.tick_params(axis="x", labelrotation=60, labelsize="x-small")
    axes.legend(frameon=False, fontsize="small")
    return [places.keep("thesis-tails", {"df": found}), save(figure, places.images / "tails.png")]


add("thesis-tails", "Figure 3.4: tail index of trained weights by layer and data set", draw_tails)
