"""What the commands `interpolate`, `sample` and `figures` do: texts of a trained autoencoder, and the figures of NVAE."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import sacrebleu
import torch
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable

from bayesattn.experiments.data.wordpiece import PAD, padded
from bayesattn.experiments.models.autoencoders.base import Autoencoder
from bayesattn.experiments.report import nvae as figures
from bayesattn.experiments.runs import load_run
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tasks.autoencoding import SHARES, Writer
from bayesattn.experiments.tasks.nvae import LONGEST, AutoencodingTask
from bayesattn.support import checks


@dataclass(frozen=True)
class InterpolateCommand:
    """Texts between two sentences, written by a trained autoencoder."""

    first: tyro.conf.Positional[str]
    """The sentence at τ = 0."""
    second: tyro.conf.Positional[str]
    """The sentence at τ = 1."""
    run: Path
    """Folder of a finished run of an autoencoding task."""
    tau: tuple[float, ...] = SHARES
    """Shares of the second sentence."""


@dataclass(frozen=True)
class SampleCommand:
    """Texts from the prior of a trained autoencoder."""

    run: Path
    """Folder of a finished run of an autoencoding task."""
    count: int = 5
    """How many."""
    seed: int = 0
    """Decides the draws."""


@dataclass(frozen=True)
class FiguresCommand:
    """Figures 4 to 6 of NVAE from the runs of its table: their data into the results folder, and drawn."""

    budget: str = "small"
    """The budget whose runs are drawn."""
    folder: Path = Path("runs")
    """Where runs are kept. Figures of runs that are not there are drawn from the data that was kept before."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures' data is kept."""
    output: Path = field(default_factory=lambda: Path("docs/images"))
    """Where they are drawn."""
    fluency: bool = False
    """Measure the perplexity of interpolated texts with SmolLM2-135M too (needs the hf extra, and gguf): about 15 minutes."""


def interpolate(command: InterpolateCommand, console: Console) -> None:
    """`bayesattn interpolate --run … "one" "two"`."""
    writer, _ = _loaded(command.run)
    rows = writer.words.encode([command.first, command.second])
    for text, row in zip((command.first, command.second), rows, strict=True):
        if not 1 <= len(row) <= LONGEST:
            raise ValueError(f"{text!r} has {len(row)} wordpieces, the autoencoder takes 1 to {LONGEST}.")
    tokens = padded(rows, LONGEST + 1)
    one, two = writer.words.decode(rows)
    shown = RichTable("τ", "BLEU to the first", "to the second", "text")
    for tau in command.tau:
        (text,) = writer.interpolate(tokens[:1], tokens[1:], tau)
        scores = (f"{sacrebleu.sentence_bleu(text, [end]).score:.0f}" for end in (one, two))
        shown.add_row(f"{tau:g}", *scores, text)
    console.print(shown)


def sample(command: SampleCommand, console: Console) -> None:
    """`bayesattn sample --run …`."""
    writer, task = _loaded(command.run)
    count = checks.whole("count", command.count)
    generator = torch.Generator().manual_seed(checks.whole("seed", command.seed, minimum=0))
    lengths = (task.load().train[-1] != PAD).sum(1)
    chosen = lengths[torch.randint(len(lengths), (count,), generator=generator)]
    for text in writer.generate(chosen, generator):
        console.print(text, soft_wrap=True, highlight=False, markup=False)


def draw_figures(command: FiguresCommand, console: Console) -> None:
    """`bayesattn figures`."""
    table = TABLES["nvae"]
    path = figures.collect(table, command.budget, command.folder, command.results)
    if command.fluency:
        with Progress(console=console) as progress:
            bar = progress.add_task("fluency of interpolated texts")
            for done, total in figures.measure_fluency(path, table, command.folder):
                progress.update(bar, completed=done, total=total)
    console.print(f"Kept in {path}.", soft_wrap=True)
    for drawn in figures.draw(path, command.output):
        console.print(f"Drawn: {drawn}", soft_wrap=True)


def _loaded(path: Path) -> tuple[Writer, AutoencodingTask]:
    loaded = load_run(path)
    model = loaded.models[0]
    if not isinstance(loaded.task, AutoencodingTask) or not isinstance(model, Autoencoder):
        raise ValueError(
            f"{path} is a run of {loaded.config.task}: texts are written by the autoencoders of nvae-wikitext2 and nvae-toy."
        )
    return Writer(model, loaded.task.words()), loaded.task
