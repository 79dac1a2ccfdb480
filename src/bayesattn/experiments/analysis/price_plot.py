"""Quality against price: every row of table `keep` on every task, with the front marked."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from bayesattn.experiments.report.plots import save
from bayesattn.experiments.tables.choice import Standing, front

matplotlib.use("Agg")

from matplotlib import pyplot


def quality_against_price(standings: list[Standing], path: Path, need: str = "likelihood") -> Path:
    """One column for each task: the change of the figure against the plain model's (lower is better), against both prices.

    The line joins the rows that no other beats in price and figure. Bars are standard errors over seeds.
    """
    known = [each for each in standings if need in each.gains]
    tasks = list(dict.fromkeys(each.task for each in known))
    if not tasks:
        raise ValueError(f"No row has two seeds in common with the plain model, so no {need} can be compared.")
    figure, panels = pyplot.subplots(
        2, len(tasks), figsize=(4.2 * len(tasks), 7), sharey="col", layout="constrained", squeeze=False
    )
    for column, task in enumerate(tasks):
        rows = [each for each in known if each.task == task]
        for line, price in enumerate(("train", "predict")):
            axes = panels[line][column]
            points = [(getattr(each, price), -each.gains[need].mean) for each in rows]
            axes.errorbar(
                [x for x, _ in points],
                [y for _, y in points],
                yerr=[each.gains[need].error for each in rows],
                fmt="o",
                markersize=4,
                color="grey",
                elinewidth=0.8,
            )
            best = [points[place] for place in front(points)]
            axes.plot([x for x, _ in best], [y for _, y in best], color="tab:red", drawstyle="steps-post", zorder=1)
            for each, (x, y) in zip(rows, points, strict=True):
                axes.annotate(each.row, (x, y), textcoords="offset points", xytext=(4, 3), fontsize="x-small")
            axes.set_xscale("log")
            axes.axhline(0.0, color="black", linewidth=0.5, linestyle=":")
            axes.set(xlabel=f"price to {price} (plain model: 1)")
            if column == 0:
                axes.set_ylabel(f"{need}: % of the plain model's, lower is better")
        panels[0][column].set_title(task)
    return save(figure, path)
