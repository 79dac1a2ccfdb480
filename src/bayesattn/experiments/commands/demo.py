"""The demo: five ways to be uncertain about handwritten digits, in one table and a report, within three minutes."""

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
from bayesattn.experiments.data.digits import OUT_OF_DISTRIBUTION, Digits, load_digits
from bayesattn.experiments.models.vit import ViT
from bayesattn.experiments.report import sections
from bayesattn.experiments.report.page import Page, write_page
from bayesattn.experiments.tasks.portrait import patches
from bayesattn.support import checks

MEMBERS = 5
CLASSES = 10
PATCH = 2
EXPLORED = 3
"""Digits in the report's explorer from either end of certainty."""


@dataclass(frozen=True)
class DemoOptions:
    """Five ways to be uncertain about handwritten digits: one table and a report, under three minutes."""

    seed: int = 0
    """Decides the split, the initial weights and all noise."""
    epochs: int = 30
    """Passes over the training digits, for each model."""
    samples: int = 32
    """Sampled passes of the methods that sample."""
    output: Path = field(default_factory=lambda: Path("demo"))
    """Folder for the report."""


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
    """One line of the table, and what the report needs."""

    name: str
    accuracy: float
    nll: float
    calibration_error: float
    auroc: dict[str, float]
    seconds: float
    bayesian: bool
    """Whether its attention is random."""
    models: list[ViT]
    history: list[dict[str, float]]
    """The losses of every epoch of the first model."""
    inside: ba.CategoricalPrediction
    entropy_outside: dict[str, Tensor]

    @property
    def figures(self) -> tuple[float, ...]:
        """Accuracy, NLL, calibration error, AUROCs."""
        return (self.accuracy, self.nll, self.calibration_error, *self.auroc.values())


def run_demo(options: DemoOptions, console: Console | None = None) -> list[Row]:
    """Train and compare the methods; print the table, write the report."""
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
    report = write_page(demo_page(rows, digits, options), options.output / "report.html")
    console.print(
        f"The report, with an attention explorer: open {report.resolve().as_uri()} in a browser.", soft_wrap=True
    )
    return rows


def demo_page(rows: list[Row], digits: Digits, options: DemoOptions) -> Page:
    """What the demo found, as a page."""
    labels = digits.test_labels
    header = ["method", "accuracy ↑", "NLL ↓", "ECE ↓", *(f"AUROC {name} ↑" for name in OUT_OF_DISTRIBUTION)]
    figures = [[row.name, *(f"{figure:.3f}" for figure in row.figures)] for row in rows]
    random = [row for row in rows if row.bayesian]
    portraits = [patches(image[0], PATCH) for image in digits.test_images]
    parts = (
        sections.figures(header, figures, "AUROC: how well entropy tells digits from what is not; 0.5 is chance."),
        sections.reliability({row.name: row.inside.mean for row in rows}, labels),
        sections.entropy(
            {row.name: row.inside.entropy for row in rows}, {row.name: row.entropy_outside for row in rows}, CLASSES
        ),
        sections.risk_coverage({row.name: (row.inside.entropy, row.inside.label != labels) for row in rows}),
        sections.training({row.name: row.history for row in rows}),
        sections.most_and_least_certain(
            sections.described(random[0].inside, labels, portraits, [str(digit) for digit in range(CLASSES)]),
            random[0].name,
        ),
        sections.explorer({row.name: _explored(row, digits) for row in random}),
    )
    return Page(
        "Five ways to be uncertain about handwritten digits",
        f"scikit-learn's digits, a ViT of 2 layers, {options.epochs} epochs, {options.samples} samples, seed {options.seed}. "
        "Made by make demo.",
        parts,
    )


def _explored(row: Row, digits: Digits) -> list[sections.Explored]:
    order = row.inside.entropy.argsort().tolist()
    chosen = [*order[:EXPLORED], *order[-EXPLORED:]]
    images = digits.test_images[chosen]
    layers = ba.attention_weights(row.models[0], images, 12, generator=torch.Generator().manual_seed(0))
    titles = [
        f"a {digits.test_labels[place]}, said {row.inside.label[place]} (entropy {row.inside.entropy[place]:.3f})"
        for place in chosen
    ]
    return sections.explored(titles, [patches(image[0], PATCH) for image in images], layers)


def _run_method(method: Method, digits: Digits, options: DemoOptions, tick: Callable[[], object]) -> Row:
    start = time.perf_counter()
    histories: list[list[dict[str, float]]] = [[] for _ in range(method.members)]
    models = [
        _train(method, digits, options.seed + member, options.epochs, tick, history)
        for member, history in enumerate(histories)
    ]
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
        bayesian=method.posterior is not None,
        models=models,
        history=histories[0],
        inside=inside,
        entropy_outside=outside,
    )


def _train(
    method: Method,
    digits: Digits,
    seed: int,
    epochs: int,
    tick: Callable[[], object],
    history: list[dict[str, float]],
) -> ViT:
    torch.manual_seed(seed)
    model = ViT(image_size=8, patch_size=PATCH, classes=CLASSES, dim=32, depth=2, heads=4, dropout=0.1)
    if method.posterior is not None:
        ba.convert(model, method.posterior)
    size, batch = len(digits.train_images), 64
    steps = epochs * -(-size // batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    learning_rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=steps)
    kl_weight = ba.schedules.linear(steps=max(1, steps // 2))
    step = 0
    for _ in range(epochs):
        sums = torch.zeros(2)
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
            sums += len(index) * torch.stack([loss.nll, loss.local_kl])
        history.append(dict(zip(("nll", "kl"), (sums / size).tolist(), strict=True)))
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
        table.add_row(row.name, *(f"{figure:.3f}" for figure in row.figures), f"{row.seconds:.0f}")
    return table
