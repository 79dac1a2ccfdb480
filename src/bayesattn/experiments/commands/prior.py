"""What the command `prior` does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table as RichTable

from bayesattn.experiments.analysis.plots import entropies
from bayesattn.experiments.analysis.prior_predictive import PriorPredictive, over_scales
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.tasks import TASKS
from bayesattn.support import checks
from bayesattn.support.files import write_atomically
from bayesattn.weight_space.families import FAMILIES

ATTENTIONS = ("attn-gaussian", "attn-dirichlet", "bam-wf", "bam-wc", "bam-lf", "bam-lc")
"""Methods whose attention weights are random: each with Gaussian weights of the network."""


@dataclass(frozen=True)
class PriorCommand:
    """What untrained networks predict: the entropy under every prior of the weights, and with every random attention (figure 3.14)."""

    task: tyro.conf.Positional[str]
    """Name of a task of classification, such as mnist or pos."""
    scales: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    """Scales of the priors."""
    samples: int = 32
    """Networks that are drawn for each."""
    inputs: int = 64
    """Test inputs that they are asked about."""
    output: Path | None = None
    """Where figure and data are written; None: study/TASK."""


def show_prior(command: PriorCommand, console: Console) -> None:
    """`bayesattn prior TASK`."""
    entry = TASKS.entry(command.task)
    task = entry.make(entry.options)
    if task.likelihood != "categorical":
        raise ValueError(
            f"The entropy of predictions is that of classes, and {command.task} has none: take mnist or pos."
        )
    for scale in command.scales:
        checks.positive("scales", scale)
    checks.whole("samples", command.samples)
    inputs = task.load().test[0][: checks.whole("inputs", command.inputs)]
    counted = task.counted(inputs)
    found: dict[str, list[PriorPredictive]] = {}
    for method in track(("mle", *ATTENTIONS), "drawing networks", console=console):
        torch.manual_seed(0)
        model = METHODS.create(method, METHODS.entry(method).options).build(task).eval()
        families = FAMILIES if method == "mle" else ("gaussian",)
        curves = over_scales(model, inputs, list(families), command.scales, command.samples, counted=counted)
        found |= {family if method == "mle" else method: values for family, values in curves.items()}
    folder = command.output or Path("study") / command.task
    data = {
        "task": command.task,
        "scales": command.scales,
        "samples": command.samples,
        "inputs": len(inputs),
        "curves": {name: [asdict(value) for value in values] for name, values in found.items()},
    }
    write_atomically(folder / "prior.json", json.dumps(data, indent=2) + "\n")
    entropies(found, command.scales, folder / "prior.png")
    shown = RichTable(
        "prior or attention", *(f"{scale:g}" for scale in command.scales), title="Entropy of single networks, nats"
    )
    for name, values in found.items():
        shown.add_row(name, *(f"{value.expected_entropy:.3f}" for value in values))
    console.print(shown)
    console.print(f"Written: {folder / 'prior.json'} and {folder / 'prior.png'}.", soft_wrap=True)
