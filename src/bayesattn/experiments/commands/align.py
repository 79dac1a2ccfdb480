"""`bayesattn align`: the alignment of a sentence pair, before and after its translation is seen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from torch import Tensor

from bayesattn.alignment import entropy_of_log_weights
from bayesattn.experiments.data.subwords import padded
from bayesattn.experiments.models.seq2seq import Seq2Seq
from bayesattn.experiments.report.plots import alignments
from bayesattn.experiments.runs import load_run
from bayesattn.experiments.runs.single import LoadedRun
from bayesattn.experiments.tasks.translated import Translations
from bayesattn.experiments.tasks.translation import TranslationTask
from bayesattn.support import checks
from bayesattn.support.annotations import Float


@dataclass(frozen=True)
class AlignCommand:
    """Draw where a translation model looks: its alignment before (prior) and after (posterior) it sees each target word."""

    run: Path
    """Folder of a finished run of a translation task."""
    sentence: Annotated[str, tyro.conf.arg(metavar="NUMBER|TEXT")]
    """Number of a pair of the test set, from 1; or a source sentence."""
    translation: str | None = None
    """The target sentence. None: the test set's, or of a sentence that is given as text, the model's own translation."""
    beside: Path | None = None
    """Folder of another run on the same subwords, such as one of soft attention: its prior stands first, beside that of `run`."""
    output: Path = Path("alignment.png")
    """Where it is drawn: .png, .svg or .pdf."""


def draw_alignment(command: AlignCommand, console: Console) -> None:
    """`bayesattn align --run … --sentence …`."""
    kinds = (".png", ".svg", ".pdf")
    if command.output.suffix not in kinds:
        raise ValueError(f"output must end in {', '.join(kinds)}; got {command.output}.")
    loaded = load_run(command.run)
    task, model = _translator(loaded, f"run={command.run}")
    other = None if command.beside is None else load_run(command.beside)
    text, translation = _pair(command, task)
    source_ids = task.corpus.source.encode([text])
    source = padded(source_ids)
    if translation is None:
        options = task.options
        (found,) = Translations(model, source).search(options.beam, options.longest, options.length_penalty)
        (translation,) = task.corpus.target.decode([found])
    target_ids = task.corpus.target.encode([translation])
    with torch.no_grad():
        prior, posterior = model.alignments(source, padded(target_ids))
    panels = {"prior": prior[0]} | ({} if posterior is None else {"posterior": posterior[0]})
    if other is not None:
        weights = _other_prior(other, f"beside={command.beside}", text, translation, (source_ids, target_ids))
        panels = {f"{other.config.method}, prior": weights, f"{loaded.config.method}, prior": prior[0]}
    alignments(
        panels, task.corpus.source.pieces(source_ids[0]), task.corpus.target.pieces(target_ids[0][1:]), command.output
    )
    console.print(f"{text}\n{translation}", highlight=False, markup=False, soft_wrap=True)
    if other is not None:
        entropies = [f"{name} {_entropy(weights):.2f}" for name, weights in panels.items()]
        console.print(f"Mean entropy in nats: {'; '.join(entropies)}", highlight=False, soft_wrap=True)
    elif posterior is None:
        console.print(
            f"{loaded.config.method} has no inference network: the prior alone is drawn. variational-sampled has one.",
            soft_wrap=True,
        )
    console.print(f"Drawn: {command.output}", soft_wrap=True)


def _translator(loaded: LoadedRun, said: str) -> tuple[TranslationTask, Seq2Seq]:
    task, (model,) = loaded.task, loaded.models
    if not isinstance(task, TranslationTask):
        raise ValueError(
            f"{said} is of the task {loaded.config.task!r}, which has no alignments: take a run of multi30k."
        )
    assert isinstance(model, Seq2Seq)
    return task, model


def _other_prior(
    loaded: LoadedRun, said: str, text: str, translation: str, ids: tuple[list[list[int]], list[list[int]]]
) -> Float[Tensor, "target source"]:
    """The alignment of the same subwords before they are seen, by another model."""
    task, model = _translator(loaded, said)
    found = task.corpus.source.encode([text]), task.corpus.target.encode([translation])
    if found != ids:
        raise ValueError(f"{said} has other subwords: take a run of the same task with the same vocabulary as run.")
    with torch.no_grad():
        prior, _ = model.alignments(*(padded(each) for each in found))
    return prior[0]


def _entropy(weights: Float[Tensor, "target source"]) -> float:
    return entropy_of_log_weights(weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).mean().item()


def _pair(command: AlignCommand, task: TranslationTask) -> tuple[str, str | None]:
    """The sentence, and its translation if it is known."""
    if not command.sentence.isdigit():
        if not command.sentence.strip():
            raise ValueError("sentence must not be empty: give the number of a test pair, or a sentence.")
        return command.sentence, command.translation
    test = task.corpus.test
    number = checks.whole("sentence", int(command.sentence))
    if number > len(test):
        raise ValueError(
            f"sentence={number} is not in the test set, which has {len(test)} pairs: take 1 to {len(test)}."
        )
    return test.source[number - 1], command.translation or test.target[number - 1]
