"""What the command `prior` does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table as RichTable
from torch import Tensor

import bayesattn as ba
from bayesattn.experiments.analysis.plots import entropies_by_scale, entropy_histograms
from bayesattn.experiments.analysis.prior_predictive import (
    DirichletPrior,
    Entropies,
    draw_from_prior,
    draw_networks,
    entropies,
    over_scales,
)
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs.single import commit
from bayesattn.experiments.tasks import TASKS, Task
from bayesattn.posteriors import Posterior
from bayesattn.support import checks
from bayesattn.support.files import write_atomically
from bayesattn.weight_space.families import FAMILIES
from bayesattn.weight_space.priors import Priors, thesis_priors

BINS = 40
"""Of the histograms, between 0 and the entropy of ignorance."""
IMPROVED = "improved"
PLAIN = "plain attention"
ATTENTIONS = ("Gaussian attention", "approximate Dirichlet attention", "Dirichlet attention")


@dataclass(frozen=True)
class PriorCommand:
    """What untrained networks predict on training inputs: histograms of the entropy with the weights drawn from each prior, and with
    attention drawn from its prior (the thesis's figure 3.14); and the entropy against the scale of the weights' prior."""

    task: tyro.conf.Positional[str]
    """Name of a task of classification, such as mnist or pos."""
    scale: float = 1.0
    """Scale of the priors that are not improved (not stated in the thesis)."""
    scales: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    """Scales of the priors, for the entropy against the scale."""
    predictions: int = 4
    """Predictions of each input, each with as many networks as the task's evaluation has samples."""
    inputs: int = 64
    """Training inputs that networks are asked about."""
    output: Path | None = None
    """Where figures and data are written; None: study/TASK."""


def show_prior(command: PriorCommand, console: Console) -> None:
    """`bayesattn prior TASK`."""
    entry = TASKS.entry(command.task)
    task = entry.make(entry.options)
    if task.likelihood != "categorical":
        raise ValueError(
            f"The entropy of predictions is that of classes, and {command.task} has none: take mnist or pos."
        )
    for scale in (command.scale, *command.scales):
        checks.positive("scales", scale)
    together = task.training.samples
    samples = together * checks.whole("predictions", command.predictions)
    inputs = task.load().train[0][: checks.whole("inputs", command.inputs)]
    counted = task.counted(inputs)
    torch.manual_seed(0)
    plain = METHODS.create("mle").build(task).eval()
    found: dict[str, Entropies] = {}
    for name, logits in track(
        _panels(task, plain, inputs, samples, command.scale), "drawing networks", console=console
    ):
        found[name] = entropies(logits, together, counted)
    curves = over_scales(plain, inputs, list(FAMILIES), command.scales, samples, counted=counted)
    folder = command.output or Path("study") / command.task
    ignorance = float(np.log(len(task.label_names)))
    histograms = {
        kind: {name: _histogram(getattr(each, kind), ignorance) for name, each in found.items()}
        for kind in ("predictive", "single")
    }
    data = {
        "command": f"bayesattn prior {command.task}",
        "commit": commit(),
        "task": command.task,
        "scale": command.scale,
        "samples": samples,
        "together": together,
        "inputs": len(inputs),
        "ignorance": ignorance,
        "histograms": histograms,
        "scales": command.scales,
        "curves": {name: [asdict(value) for value in values] for name, values in curves.items()},
    }
    write_atomically(folder / "prior.json", json.dumps(data, indent=1) + "\n")
    entropy_histograms(histograms, ignorance, folder / "prior_entropies.png")
    entropies_by_scale(curves, command.scales, folder / "prior.png")
    console.print(_table(histograms, together))
    console.print(f"Written: {folder / 'prior.json'}, prior_entropies.png and prior.png.", soft_wrap=True)


def attention_priors() -> dict[str, Posterior]:
    """The priors of the thesis's attention weights, as attention weights."""
    gaussian, dirichlet = (METHODS.entry(name).options for name in ("attn-gaussian", "attn-dirichlet"))
    concentration = dirichlet.prior_concentration
    posteriors = (
        ba.Gaussian(
            gaussian.prior_sigma, initial_sigma=gaussian.prior_sigma
        ),  # centred on the same logits: the prior itself
        DirichletPrior(concentration, approximate=True),
        DirichletPrior(concentration),
    )
    return dict(zip(ATTENTIONS, posteriors, strict=True))


def _panels(
    task: Task, plain: torch.nn.Module, inputs: Tensor, samples: int, scale: float
) -> Iterator[tuple[str, Tensor]]:
    """Name and logits of each panel of the figure: priors of weights, then those of attention in networks as they start; and plain
    attention in them, to compare with."""
    priors: dict[str, Priors] = {
        family: ba.weight_space.WeightPrior(family, scale, 5.0 if family == "student" else None) for family in FAMILIES
    }
    if task.weight_priors is not None:
        priors[IMPROVED] = thesis_priors(task.weight_priors)
    for name, prior in priors.items():
        yield name, draw_from_prior(plain, inputs, prior, samples, generator=torch.Generator().manual_seed(0))
    for name, posterior in {PLAIN: ba.Softmax(), **attention_priors()}.items():
        yield name, draw_networks(lambda posterior=posterior: task.build_with(posterior, 0.0), inputs, samples)


def _histogram(values: Tensor, ignorance: float) -> dict[str, Any]:
    counts, _ = np.histogram(values.clamp(0, ignorance).numpy(), BINS, (0.0, ignorance))
    low, high = (values.double().quantile(level).item() for level in (0.05, 0.95))
    return {"mean": values.mean().item(), "from": low, "to": high, "counts": counts.tolist()}


def _table(histograms: dict[str, dict[str, Any]], together: int) -> RichTable:
    shown = RichTable(
        "prior", f"of {together} networks: mean", "5 to 95 %", "of one: mean", "5 to 95 %", title="Entropy, nats"
    )
    for name in histograms["predictive"]:
        cells = []
        for kind in ("predictive", "single"):
            each = histograms[kind][name]
            cells += [f"{each['mean']:.2f}", f"{each['from']:.2f} to {each['to']:.2f}"]
        shown.add_row(name, *cells)
    return shown
