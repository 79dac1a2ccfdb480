"""The demo: five ways to be uncertain about handwritten digits, in one table and two plots, within three minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc, multiclass_calibration_error

import bayesattn as ba
from bayesattn import checks
from bayesattn.data.digits import OUT_OF_DISTRIBUTION, Digits, load_digits
from bayesattn.models.vit import ViT
from bayesattn.report import plots

MEMBERS = 5
CLASSES = 10


@dataclass(frozen=True)
class DemoOptions:
    """Five ways to be uncertain about handwritten digits: one table, two plots, under three minutes."""

    seed: int = 0
    """Decides the split, the initial weights and all noise."""
    epochs: int = 30
    """Passes over the training digits, for each model."""
    samples: int = 32
    """Sampled passes of the methods that sample."""
    output: Path = field(default_factory=lambda: Path("demo"))
    """Folder for the plots."""


@dataclass(frozen=True)
class Method:
    """How one row of the table is made."""

    name: str
    posterior: ba.Posterior | None = None
    members: int = 1
    dropout: bool = False

    @property
    def is_random(self) -> bool:
        """Whether one model's predictions differ from pass to pass."""
        return self.dropout or self.posterior is not None


METHODS = (
    Method("deterministic"),
    Method("MC dropout", dropout=True),
    Method(f"ensemble of {MEMBERS}", members=MEMBERS),
    Method("Weibull, contextual", ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=0.01, hidden=5))),
    Method("Dirichlet", ba.Dirichlet()),
)


@dataclass(frozen=True)
class Row:
    """One line of the table, and what the plots need."""

    name: str
    accuracy: float
    nll: float
    calibration_error: float
    auroc: dict[str, float]
    seconds: float
    probabilities: Tensor
    entropy_inside: Tensor
    entropy_outside: Tensor


def run_demo(options: DemoOptions, console: Console | None = None) -> list[Row]:
    """Train and compare the methods; print the table, save the plots."""
    checks.whole("epochs", options.epochs)
    checks.whole("samples", options.samples)
    console = console or Console()
    digits = load_digits(options.seed)
    console.print(
        f"scikit-learn's digits, {len(digits.train_images)} to train and {len(digits.test_images)} to test; a ViT of 2 layers, "
        f"{options.epochs} epochs for each model, seed {options.seed}."
    )
    models_to_train = sum(method.members for method in METHODS)
    with _progress(console) as progress:
        bar = progress.add_task("starting", total=models_to_train * options.epochs)
        rows = []
        for method in METHODS:
            progress.update(bar, description=method.name)
            rows.append(_run_method(method, digits, options, lambda: progress.advance(bar)))
        progress.update(bar, description="done")
    console.print(comparison(rows, options.samples))
    reliability = plots.reliability(
        {row.name: row.probabilities for row in rows}, digits.test_labels, options.output / "reliability.png"
    )
    entropy = plots.entropy_in_and_out(
        {row.name: row.entropy_inside for row in rows},
        {row.name: row.entropy_outside for row in rows},
        CLASSES,
        options.output / "entropy.png",
    )
    console.print(
        f"Plots: {reliability} (reliability) and {entropy} (entropy in and out of distribution).", soft_wrap=True
    )
    return rows


def _run_method(method: Method, digits: Digits, options: DemoOptions, tick: Callable[[], object]) -> Row:
    start = time.perf_counter()
    models = [_train(method, digits, options.seed + member, options.epochs, tick) for member in range(method.members)]
    inside = _predict(models, method, options.samples, digits.test_images)
    outside = {
        name: _predict(models, method, options.samples, make(digits.test_images)).entropy
        for name, make in OUT_OF_DISTRIBUTION.items()
    }
    seconds = time.perf_counter() - start
    labels = digits.test_labels
    return Row(
        name=method.name,
        accuracy=(inside.label == labels).float().mean().item(),
        nll=-inside.log_prob(labels).mean().item(),
        calibration_error=multiclass_calibration_error(inside.mean, labels, CLASSES, n_bins=15).item(),
        auroc={name: _auroc(inside.entropy, entropy) for name, entropy in outside.items()},
        seconds=seconds,
        probabilities=inside.mean,
        entropy_inside=inside.entropy,
        entropy_outside=torch.cat(list(outside.values())),
    )


def _train(method: Method, digits: Digits, seed: int, epochs: int, tick: Callable[[], object]) -> ViT:
    torch.manual_seed(seed)
    model = ViT(image_size=8, patch_size=2, classes=CLASSES, dim=32, depth=2, heads=4, dropout=0.1)
    if method.posterior is not None:
        ba.convert(model, method.posterior)
    size, batch = len(digits.train_images), 64
    steps = epochs * -(-size // batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    learning_rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=steps)
    kl_weight = ba.linear(steps=max(1, steps // 2))
    step = 0
    for _ in range(epochs):
        for index in torch.randperm(size).split(batch):
            with ba.record() as latents:
                logits = model(digits.train_images[index])
            nll = F.cross_entropy(logits, digits.train_labels[index], reduction="none")
            loss = ba.elbo(
                nll,
                latents if method.posterior is not None else None,
                kl_weight=kl_weight(step),
                kl_reduction="mean",
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            learning_rate.step()
            step += 1
        tick()
    return model


def _predict(models: list[ViT], method: Method, samples: int, images: Tensor) -> ba.CategoricalPrediction:
    passes = samples if method.is_random else 1
    predictions = [ba.predict(model, images, samples=passes, dropout=method.dropout) for model in models]
    return ba.CategoricalPrediction(torch.cat([prediction.samples for prediction in predictions]))


def _auroc(inside: Tensor, outside: Tensor) -> float:
    scores = torch.cat([inside, outside])
    labels = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)]).long()
    return binary_auroc(scores, labels).item()


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<26}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=console
    )


def comparison(rows: list[Row], samples: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title="Digits: how good, how calibrated, and does it know what is not a digit?",
        caption="AUROC: entropy tells digits from what is not; 0.5 is chance. s: seconds to train and predict. "
        f"{samples} samples; KL averaged over elements, as in BAM's code.",
    )
    table.add_column("method", no_wrap=True)
    for column in ("acc. ↑", "NLL ↓", "ECE ↓", *(f"AUROC ↑\n{name}" for name in OUT_OF_DISTRIBUTION), "s"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        figures = (row.accuracy, row.nll, row.calibration_error, *row.auroc.values())
        table.add_row(row.name, *(f"{figure:.3f}" for figure in figures), f"{row.seconds:.0f}")
    return table
