"""`bayesattn demo`: seven ways to be uncertain about handwritten digits, as a small table and a report of its runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from rich.console import Console

from bayesattn.experiments.commands.console import progress_bars
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.report.page import write_page
from bayesattn.experiments.report.runs_page import runs_page
from bayesattn.experiments.runs import RunConfig, RunFolder, run
from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.printing import in_terminal
from bayesattn.experiments.tables.results import TableResults, collect
from bayesattn.experiments.tables.summary import summarise

BUDGET = "demo"
TASK = "digits"
TWO, FIVE = "ensemble of 2", "ensemble of 5"
ROWS = ("mle", "mc-dropout", "attn-dirichlet", "bam-wc", "packed", TWO, FIVE)
CHECKPOINT_SECONDS = 2.0
"""A model takes about ten seconds: one that was stopped loses little."""

TITLE = "Seven ways to be uncertain about handwritten digits"


@dataclass(frozen=True)
class DemoOptions:
    """Seven ways to be uncertain about handwritten digits: one table and a report, in about three minutes."""

    seed: int = 0
    """Decides the split, the initial weights and all noise."""
    epochs: int = 25
    """Passes over the training digits, for each model."""
    samples: int = 16
    """Sampled passes of the methods that sample."""
    output: Path = field(default_factory=lambda: Path("demo"))
    """Folder for the report and the runs."""


def run_demo(options: DemoOptions, console: Console | None = None) -> TableResults:
    """Train what is missing, print the table, write the report."""
    console = console or Console()
    table = demo_table(options)
    configs = [config.with_seed(options.seed) for config in table.configs(BUDGET)]
    folder = options.output / "runs"
    console.print(
        f"scikit-learn's digits, a ViT of 2 layers, {options.epochs} epochs for each model, seed {options.seed}. "
        "Ctrl-C stops; the same command goes on."
    )
    _run_all(configs, folder, console)
    results = collect(table, BUDGET, configs, folder)
    for part in summarise(table, results):
        console.print(in_terminal(part))
    for row in table.methods:
        console.print(f"{row}: {METHODS.entry(table.variant(row).method).description}", highlight=False)
    console.print(
        "T: with a temperature that validation digits gave. AUROC: how well entropy, or the distance of features from the "
        "training digits', tells digits from turned ones; 0.5 is chance. Cost: processor time of training, as a ratio to mle's. "
        "More is in the report."
    )
    page = runs_page([RunFolder.of(folder, config).path for config in configs], names=table.methods)
    page = replace(page, title=TITLE, text=f"{page.text} Seed {options.seed}. Made by make demo.")
    console.print(page.conclusion, highlight=False)
    report = write_page(page, options.output / "report.html")
    console.print(
        f"The report, with an attention explorer: open {report.resolve().as_uri()} in a browser.", soft_wrap=True
    )
    return results


def demo_table(options: DemoOptions) -> Table:
    """The table of the demo. It is no paper's; its KLs are means over the weights, as in BAM's code."""
    metrics = (
        Metric("", "accuracy", "acc.", True),
        Metric("", "nll", "NLL", False),
        Metric("", "nll_t", "NLL, T", False),
        Metric("", "ece_t", "ECE, T", False),
        Metric("", "auroc_rotated_entropy", "AUROC by entr.", True),
        Metric("", "auroc_rotated_distance", "AUROC by dist.", True),
    )
    budget = Budget(
        seeds=1,
        training={"epochs": options.epochs, "samples": options.samples, "batch_size": 64, "learning_rate": 4e-3},
        task_options={"data_seed": options.seed, "heads": 4, "knowing": True},
    )
    annealed = {"kl_reduction": "mean", "kl_weight": 0.1, "kl_anneal": 0.5}
    return Table(
        name="demo",
        title=TITLE,
        source="bayesattn demo",
        datasets=(Dataset("Digits", TASK, metrics),),
        methods=ROWS,
        published_file=None,
        budgets={BUDGET: {TASK: budget}},
        method_options={TASK: {"attn-dirichlet": annealed, "bam-wc": annealed}},
        variants={TWO: Variant("ensemble", {"members": 2}), FIVE: Variant("ensemble", {"members": 5})},
    )


def _run_all(configs: list[RunConfig], folder: Path, console: Console) -> None:
    """One after the other, with one thread: the ensemble's first model is that of mle, and the models are small."""
    torch.set_num_threads(1)
    epochs = [config.training.epochs * config.make_method().members for config in configs]
    with progress_bars(console) as progress:
        bar = progress.add_task("starting", total=sum(epochs))
        for number, config in enumerate(configs):
            done = sum(epochs[:number])
            progress.update(bar, completed=done, description=config.method)
            run(
                config,
                folder,
                checkpoint_seconds=CHECKPOINT_SECONDS,
                on_epoch=lambda line, done=done, config=config: progress.update(
                    bar, completed=done + line["member"] * config.training.epochs + line["epoch"]
                ),
            )
        progress.update(bar, completed=sum(epochs), description="done")
