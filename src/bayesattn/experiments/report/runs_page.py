"""The report of runs: how they trained, how sure they are, how right they are to be so, and what they look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.conclusion import conclusion, costs, reference
from bayesattn.experiments.report.page import Page, Section
from bayesattn.experiments.runs import LoadedRun, RunFolder, load_run
from bayesattn.experiments.tasks.portrait import Portrait
from bayesattn.inspection import attention_weights
from bayesattn.prediction.predictions import CategoricalPrediction, GaussianPrediction
from bayesattn.scopes.watching import watch

TESTED = 1000
"""At most so many test examples are predicted."""
EXPLORED = 2
"""Examples in the explorer from either end of certainty, and as many from the middle."""
DRAWS = 12
"""Sampled passes in the explorer."""
FIRST = ("accuracy", "log_likelihood", "nll", "nll_t", "ece", "ece_t", "aurc")
"""Figures that stand first in the table, where there are such."""
HIDDEN_SCORES = ("_confidence", "_mutual_information", "_variance", "_energy", "_max_logit", "_relative_distance")


@dataclass(frozen=True)
class _Looked:
    """One run with its predictions on the test examples."""

    name: str
    run: LoadedRun
    inputs: Tensor
    labels: Tensor
    prediction: Any

    @property
    def counted(self) -> Tensor:
        """Which predicted positions are not padding."""
        mask = self.run.task.counted(self.inputs)
        return torch.ones(self.labels.shape, dtype=torch.bool) if mask is None else mask

    def uncertainty(self) -> Tensor:
        """Of each example: its predictive entropy, of a sequence the mean over its positions."""
        assert isinstance(self.prediction, CategoricalPrediction)
        each = self.prediction.entropy
        if each.dim() == 1:
            return each
        counted = self.counted
        return (each * counted).sum(1) / counted.sum(1).clamp_min(1)


def runs_page(paths: Sequence[Path], names: Sequence[str] | None = None) -> Page:
    """One page for runs of one task; `names` of the runs, if the methods' do not tell them apart."""
    loaded = {path: load_run(path) for path in paths}
    tasks = sorted({run.config.task for run in loaded.values()})
    if len(tasks) > 1:
        raise ValueError(f"One report is about one task; these runs are of {', '.join(tasks)}.")
    names = names or _names(list(loaded.values()))
    histories = {name: RunFolder(path).history() for name, path in zip(names, loaded, strict=True)}
    looked = [_looked(name, run) for name, run in zip(names, loaded.values(), strict=True)]
    parts = [_figures(looked), sections.training(histories)]
    categorical = [each for each in looked if isinstance(each.prediction, CategoricalPrediction)]
    gaussian = [each for each in looked if isinstance(each.prediction, GaussianPrediction)]
    if categorical:
        parts += _categorical(categorical)
    if gaussian:
        parts.append(sections.interval_coverage({each.name: _coverage(each) for each in gaussian}))
    explored = {each.name: found for each in looked if (found := _explored(each))}
    if explored:
        parts.append(sections.explorer(explored))
    commits = ", ".join(sorted({run.result["commit"] for run in loaded.values()}))
    return Page(
        f"Runs of {tasks[0]}",
        f"Made by bayesattn report from {len(paths)} run(s), commits {commits}.",
        tuple(parts),
        conclusion({each.name: each.run.result for each in looked}),
    )


def _names(runs: Sequence[LoadedRun]) -> list[str]:
    """The methods; with the seed, and where that is not enough with the digest of the config, where they recur."""
    methods = [run.config.method for run in runs]
    if len(set(methods)) == len(methods):
        return methods
    seeded = [f"{run.config.method}, seed {run.config.seed}" for run in runs]
    return seeded if len(set(seeded)) == len(seeded) else [run.config.name for run in runs]


def _looked(name: str, run: LoadedRun) -> _Looked:
    *inputs, labels = (tensor[:TESTED] for tensor in run.task.load().test)
    if len(inputs) != 1:
        raise ValueError(
            f"Runs of {run.config.task} cannot be reported: its models take {len(inputs)} inputs, the report shows "
            "models of one. Its tables can be: bayesattn report TABLE."
        )
    torch.manual_seed(0)
    return _Looked(name, run, inputs[0], labels, run.predict(inputs[0]))


def _figures(looked: Sequence[_Looked]) -> Section:
    everything = dict.fromkeys(name for each in looked for name in each.run.result["metrics"])
    shown = [name for name in everything if not _is_detail(name)]
    metrics = sorted(shown, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    results = {each.name: each.run.result for each in looked}
    cost = costs(results)
    rows = [
        [
            each.name,
            *(_number(each.run.result["metrics"].get(name)) for name in metrics),
            f"{each.run.result['train_seconds']:.0f}",
            f"{cost[each.name]:.1f}",
        ]
        for each in looked
    ]
    return sections.figures(
        ["run", *metrics, "seconds", "cost"],
        rows,
        "As evaluated at the end of each run, on the whole test set. Seconds: processor time of training; cost: the same as a "
        f"ratio to that of {reference(results)}.",
        colours=True,
    )


def _is_detail(metric: str) -> bool:
    """Whether a table of a task's figures is better without it: of the scores of what is outside, two are shown."""
    return metric.startswith("accepted_") or metric.endswith(HIDDEN_SCORES)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _categorical(looked: Sequence[_Looked]) -> list[Section]:
    parts = [
        sections.reliability(
            {each.name: each.prediction.mean[each.counted] for each in looked}, looked[0].labels[looked[0].counted]
        )
    ]
    inside, outside, curves = {}, {}, {}
    for each in looked:
        prediction, counted = each.prediction, each.counted
        assert isinstance(prediction, CategoricalPrediction)
        inside[each.name] = prediction.entropy[counted]
        found = each.run.task.out_of_distribution(each.inputs)
        outside[each.name] = {name: _entropy(each, others[:TESTED]) for name, others in found.items()}
        curves[each.name] = (prediction.entropy[counted], (prediction.label != each.labels)[counted])
    classes = looked[0].prediction.samples.shape[-1]
    parts.append(sections.entropies(inside, {name: sets for name, sets in outside.items() if sets}, classes))
    parts.append(sections.risk_coverage(curves))
    last = looked[-1]
    portraits = last.run.task.portraits(last.inputs)
    if portraits is not None:
        parts.append(sections.most_and_least_certain(_shown(last, portraits), last.name))
    return parts


def _entropy(looked: _Looked, inputs: Tensor) -> Tensor:
    prediction = looked.run.predict(inputs)
    assert isinstance(prediction, CategoricalPrediction)
    return prediction.entropy.flatten()


def _shown(looked: _Looked, portraits: list[Portrait]) -> list[sections.Shown]:
    prediction = looked.prediction
    assert isinstance(prediction, CategoricalPrediction)
    if looked.labels.dim() == 1:
        return sections.described(prediction, looked.labels, portraits, looked.run.task.label_names)
    wrong = ((prediction.label != looked.labels) & looked.counted).sum(1)
    return [
        sections.Shown(portrait, uncertainty, f"{mistakes} of {len(portrait.names)} wrong")
        for portrait, uncertainty, mistakes in zip(
            portraits, looked.uncertainty().tolist(), wrong.tolist(), strict=True
        )
        if len(portrait.names) > 3  # a word or two say little
    ]


def _coverage(looked: _Looked) -> list[tuple[float, float]]:
    """(level, share of the values inside the central interval of that level)."""
    assert isinstance(looked.prediction, GaussianPrediction)
    points = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
        lower, upper = looked.prediction.interval(level)
        points.append((level, ((looked.labels >= lower) & (looked.labels <= upper)).float().mean().item()))
    return points


def _explored(looked: _Looked) -> list[sections.Explored]:
    """Some examples with the weights of their layers; none if the model's attention is not Bayesian."""
    model, portraits = looked.run.models[0], looked.run.task.portraits(looked.inputs)
    if portraits is None or not _is_bayesian(model, looked.inputs[:1]):
        return []
    uncertain = isinstance(looked.prediction, CategoricalPrediction)
    scores = looked.uncertainty() if uncertain else looked.prediction.variance.flatten(1).mean(1)
    order = scores.argsort().tolist()
    middle = len(order) // 2
    chosen = list(dict.fromkeys([*order[:EXPLORED], *order[middle : middle + EXPLORED], *order[-EXPLORED:]]))
    layers = attention_weights(model, looked.inputs[chosen], DRAWS, generator=torch.Generator().manual_seed(0))
    word = "entropy" if uncertain else "variance"
    titles = [f"{place}: {_short(portraits[place])} ({word} {scores[place].item():.3f})" for place in chosen]
    return sections.explored(titles, [portraits[place] for place in chosen], layers)


def _short(portrait: Portrait) -> str:
    if portrait.image is not None:
        return "image"
    words = " ".join(portrait.names)
    return words if len(words) <= 40 else words[:39] + "…"


def _is_bayesian(model: torch.nn.Module, inputs: Tensor) -> bool:
    with torch.no_grad(), watch() as seen:
        model(inputs)
    return bool(seen)
