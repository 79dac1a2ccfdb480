"""What the command `study` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich import box
from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable

from bayesattn.experiments.analysis import plots
from bayesattn.experiments.analysis.weight_study import (
    LayerStudy,
    collect_weights,
    priors_of_study,
    study,
    study_configs,
    write_study,
)
from bayesattn.experiments.runs.sweep import sweep
from bayesattn.experiments.tasks import TASKS
from bayesattn.support import checks


@dataclass(frozen=True)
class StudyCommand:
    """Train many maximum-likelihood models and say what their weights are distributed like; writes a table, figures and priors."""

    task: tyro.conf.Positional[str]
    """Name of a task."""
    runs: int = 100
    """Seeds."""
    epochs: int | None = None
    """Other epochs than the task's."""
    jobs: int = 1
    """Runs at a time, each a process with one thread."""
    folder: Path = Path("runs")
    """Where runs are kept, each in a folder of its own."""
    output: Path | None = None
    """Where the study is written; None: study/TASK."""


def make_study(command: StudyCommand, console: Console) -> None:
    """`bayesattn study TASK`."""
    TASKS.entry(command.task)
    checks.whole("runs", command.runs, minimum=2)
    training = None if command.epochs is None else {"epochs": command.epochs}
    configs = study_configs(command.task, command.runs, training)
    for outcome in sweep(configs, command.folder, jobs=command.jobs):
        if outcome.error is not None:
            console.print(f"[red]failed[/red] {outcome.config.name}: {outcome.error}", soft_wrap=True)
    weights = collect_weights(configs, command.folder)
    layers = study(weights)
    folder = command.output or Path("study") / command.task
    write_study(command.task, layers, priors_of_study(weights, layers), folder)
    plots.densities(layers, folder / "densities.png")
    plots.quantiles(layers, folder / "quantiles.png")
    plots.correlations(layers, folder / "correlations.png")
    plots.covariance_maps(layers, folder / "covariances.png")
    plots.covariance_histograms(layers, folder / "covariance_histograms.png")
    console.print(_table(command.task, layers))
    console.print(f"Written: {folder}. Use the fitted priors with --prior {folder / 'priors.json'}.", soft_wrap=True)


def _table(task: str, layers: list[LayerStudy]) -> RichTable:
    titles = ("scale", "df", "by error", "likeliest", "modes", "corr.", "chance")
    shown = RichTable(
        Column("layer", overflow="fold", min_width=20),
        *(Column(title, no_wrap=True) for title in titles),
        title=f"Weights of {task}: {layers[0].runs} runs",
        caption="df: of a Student-t. By error, likeliest: the best family. corr.: mean size of correlations between weights; "
        "chance: of independent ones.",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for layer in layers:
        shown.add_row(
            layer.name,
            f"{layer.scale:.3f}",
            f"{layer.df:.1f}",
            layer.best_by_error,
            layer.best_by_likelihood,
            str(layer.modes),
            f"{layer.off_diagonal:.3f}",
            f"{layer.off_diagonal_isotropic:.3f}",
        )
    return shown
