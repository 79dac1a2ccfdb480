"""Which method to use: what the results of table `keep` say, by what one has, needs and can pay."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from bayesattn.experiments.tables.base import Dataset, Table
from bayesattn.experiments.tables.keep import FIVE, IMAGES, OUTSIDE, SCORES, TEXTS, THREE, TWO
from bayesattn.experiments.tables.results import TableResults
from bayesattn.experiments.tables.summary import figure, runs_of_rows

REFERENCE = "mle"
NEEDS = {
    "likelihood": ("nll_t", "NLL with T"),
    "calibration": ("ece_t", "ECE with T"),
    "abstention": ("aurc", "AURC"),
}
"""Need → the figure that it is judged by (lower is better), and its name. Detection is a matter of scores and has a table of its own."""
AFTERWARDS = ("laplace-head", "noise-after")
"""Rows that a trained model can still get."""
SITUATIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "a trained model": ((*TEXTS, *IMAGES), "afterwards"),
    "a pretrained model to fine-tune": (TEXTS, "any"),
    "nothing yet": (IMAGES, "any"),
}
"""What one has → the tasks that speak of it, and which rows can still be had."""
PAYS: dict[str, tuple[float, float]] = {
    "about one model": (1.3, 1.3),
    "twice the training": (2.3, 1.3),
    "several predictions": (1.3, math.inf),
    "anything": (math.inf, math.inf),
}
"""What one can pay → the most that it may cost to train and to predict, in prices of the plain model."""


@dataclass(frozen=True)
class Gain:
    """How much better a row is than the plain model on one task, seed by seed, in per cent of the plain model's figure."""

    mean: float
    error: float

    @property
    def is_clear(self) -> bool:
        """By two standard errors at least."""
        return self.mean > 0 and self.mean >= 2 * self.error


@dataclass(frozen=True)
class Standing:
    """A row on one task: what it costs and gains."""

    row: str
    task: str
    train: float
    predict: float
    gains: dict[str, Gain]
    """By need."""


def standings(table: Table, results: TableResults) -> list[Standing]:
    """Every row on every task that has runs of it and of the plain model. Gains need two seeds in common."""
    return [standing for dataset in table.datasets for standing in _of_task(table, dataset, results)]


def _of_task(table: Table, dataset: Dataset, results: TableResults) -> list[Standing]:
    found = runs_of_rows(table, dataset, results)
    plain = found.get(REFERENCE, [])
    if not plain:
        return []
    found_standings = []
    for row, runs in found.items():
        prices = [_ratio(runs, plain, name) for name in ("train_seconds", "predict_seconds")]
        gains = {need: gain for need, (name, _) in NEEDS.items() if (gain := _gain(runs, plain, name)) is not None}
        if None not in prices:
            found_standings.append(Standing(row, dataset.task, prices[0] or 0.0, prices[1] or 0.0, gains))
    return found_standings


def _ratio(runs: list[dict[str, Any]], plain: list[dict[str, Any]], name: str) -> float | None:
    mine, theirs = ([value for run in each if (value := figure(run, name)) is not None] for each in (runs, plain))
    return statistics.fmean(mine) / statistics.fmean(theirs) if mine and theirs else None


def _gain(runs: list[dict[str, Any]], plain: list[dict[str, Any]], name: str) -> Gain | None:
    before = {run["config"]["seed"]: figure(run, name) for run in plain}
    after = {run["config"]["seed"]: figure(run, name) for run in runs}
    pairs = [
        (value, usual) for seed, value in after.items() if value is not None and (usual := before.get(seed)) is not None
    ]
    if len(pairs) < 2:
        return None
    mean = statistics.fmean([usual for _, usual in pairs])
    gains = [100.0 * (usual - value) / mean for value, usual in pairs]
    return Gain(statistics.fmean(gains), statistics.stdev(gains) / math.sqrt(len(gains)))


def chosen(all_standings: list[Standing], situation: str, pay: str, need: str) -> str:
    """The row to take, in words: that of the largest mean gain among those that are clear on most tasks; else the plain model."""
    tasks, which = SITUATIONS[situation]
    train, predict = PAYS[pay]
    rows: dict[str, list[Standing]] = {}
    for each in all_standings:
        possible = which == "any" or each.row in AFTERWARDS
        if each.task in tasks and each.row != REFERENCE and possible and need in each.gains:
            rows.setdefault(each.row, []).append(each)
    affordable = {
        row: found
        for row, found in rows.items()
        if statistics.fmean([each.train for each in found]) <= train
        and statistics.fmean([each.predict for each in found]) <= predict
    }
    best: tuple[float, str] | None = None
    for row, found in affordable.items():
        clear = [each for each in found if each.gains[need].is_clear]
        if 2 * len(clear) <= len(found):
            continue
        mean = statistics.fmean([each.gains[need].mean for each in found])
        if best is None or mean > best[0]:
            train_price, predict_price = (
                statistics.fmean([getattr(each, of) for each in found]) for of in ("train", "predict")
            )
            words = f"**{row}**: {mean:.0f} % less, clear on {len(clear)} of {len(found)}; price {train_price:.1f} / {predict_price:.1f}"
            best = (mean, words)
    if best is not None:
        return best[1]
    return "the plain model, calibrated" if any(each.task in tasks for each in all_standings) else "no runs yet"


def front(points: list[tuple[float, float]]) -> list[int]:
    """Which points (price, figure) no other beats in both, in order of price; lower is better.

    >>> front([(1.0, 5.0), (2.0, 3.0), (3.0, 4.0), (5.0, 1.0)])
    [0, 1, 3]
    """
    order = sorted(range(len(points)), key=lambda place: points[place])
    kept: list[int] = []
    for place in order:
        if not kept or points[place][1] < points[kept[-1]][1]:
            kept.append(place)
    return kept


def page(table: Table, results: TableResults, picture: str | None) -> str:
    """The page in Markdown."""
    known = standings(table, results)
    if not known:
        raise ValueError(
            f"There are no runs of {REFERENCE} in table {table.name}: make them with `bayesattn table {table.name}`."
        )
    spent = "" if results.budget == "paper" else f", budget `{results.budget}`"
    lines = [
        "# Which method should I use?",
        "",
        f"Rendered by `bayesattn which` from the results of `bayesattn table {table.name}`{spent}: do not edit. Every row has a",
        "temperature of its own from validation examples. A gain is in per cent of the plain model's figure, seed by seed; it is",
        "clear if it is two standard errors or more. A row is recommended if it is clear on most tasks that speak of the",
        "situation; of those, the one with the largest mean gain. Prices are measured seconds to train / to predict, the plain",
        "model's being 1 / 1. Nothing is said of tasks that were not run.",
        "",
    ]
    if picture is not None:
        lines += [f"![Quality against price, with the front marked]({picture})", ""]
    for situation, (tasks, _) in SITUATIONS.items():
        run = [task for task in tasks if any(each.task == task for each in known)]
        lines += [f"## You have {situation}", "", f"Tasks: {', '.join(run) or 'none was run'}.", ""]
        lines += ["| you can pay | " + " | ".join(f"{need} ({words})" for need, (_, words) in NEEDS.items()) + " |"]
        lines += ["| --- " * (1 + len(NEEDS)) + "|"]
        for pay in PAYS:
            lines.append(f"| {pay} | " + " | ".join(chosen(known, situation, pay, need) for need in NEEDS) + " |")
        lines.append("")
    lines += _detection(table, results)
    lines += _rest(known)
    return "\n".join(lines)


def _detection(table: Table, results: TableResults) -> list[str]:
    """AUROC of what is outside by every score, of the plain model and of some others."""
    said = "AUROC in per cent, the mean over a task's outside inputs and seeds; the best score of a row is bold."
    lines = ["## You need detection", "", said, ""]
    lines += ["| task | row | " + " | ".join(SCORES.values()) + " |", "| --- " * (2 + len(SCORES)) + "|"]
    for dataset in table.datasets:
        found = runs_of_rows(table, dataset, results)
        for row in (REFERENCE, "gp-head", TWO, THREE, FIVE):
            means = {score: _mean_auroc(found.get(row, []), dataset.task, score) for score in SCORES}
            best = max((value for value in means.values() if value is not None), default=None)
            if best is None:
                continue
            cells = [
                "" if value is None else f"**{value:.1f}**" if value == best else f"{value:.1f}"
                for value in means.values()
            ]
            lines.append(f"| {dataset.label} | {row} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _mean_auroc(runs: list[dict[str, Any]], task: str, score: str) -> float | None:
    values = [figure(run, f"auroc_{name}_{score}") for run in runs for name in OUTSIDE[task]]
    present = [value for value in values if value is not None]
    return 100.0 * statistics.fmean(present) if present else None


def _rest(known: list[Standing]) -> list[str]:
    """The rows that are not clearly better than the plain model on most tasks, in nothing."""
    names = list(dict.fromkeys(each.row for each in known if each.row != REFERENCE))
    without = []
    for row in names:
        of_row = [each for each in known if each.row == row and each.gains]
        judged = {need: [each.gains[need] for each in of_row if need in each.gains] for need in NEEDS}
        if of_row and not any(2 * sum(gain.is_clear for gain in gains) > len(gains) for gains in judged.values()):
            without.append(row)
    if not without:
        return []
    said = "are not clearly better than the plain model with its temperature on most tasks, in likelihood, calibration or abstention"
    return ["## Rows that did not earn their keep", "", f"{', '.join(without)} {said}.", ""]
