"""`bayesattn show`: which regions of an image a model looks at to answer a question, or to write each word of a caption."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from rich.console import Console
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.experiments.models.captioner import Captioner
from bayesattn.experiments.models.mcan import MCAN
from bayesattn.experiments.models.vqa import BottomUpVQA
from bayesattn.experiments.report.regions import Panel, region_maps
from bayesattn.experiments.runs import load_run
from bayesattn.experiments.runs.single import LoadedRun
from bayesattn.experiments.tasks.captioning import CaptionTask, Described
from bayesattn.experiments.tasks.visual_questions import THRESHOLD, QuestionTask, at_least_two
from bayesattn.prediction.sampled import predict
from bayesattn.support import checks

KINDS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class ShowCommand:
    """Draw which regions of an image a fitted model looks at: prior, posterior, mean and standard deviation over samples."""

    what: tyro.conf.Positional[Literal["vqa", "caption"]]
    """The answer to a question, or the words of a caption."""
    run: Path
    """Folder of a finished run of such a task."""
    example: int = 1
    """Number of a question or of an image of the test set, from 1."""
    noise: float = 0.0
    """Variance of Gaussian noise on the features."""
    samples: int = 20
    """Sampled predictions."""
    beside: tuple[Path, ...] = ()
    """Folders of other runs on the same questions: their answers and p-values stand side by side (figure 2 of BAM; vqa alone)."""
    output: Path = Path("regions.png")
    """Where it is drawn: .png, .svg or .pdf."""


def draw_regions(command: ShowCommand, console: Console) -> None:
    """`bayesattn show vqa|caption --run … --example …`."""
    if command.output.suffix not in KINDS:
        raise ValueError(f"output must end in {', '.join(KINDS)}; got {command.output}.")
    if checks.finite("noise", command.noise) < 0:
        raise ValueError(f"noise must not be negative, got {command.noise!r}: it is a variance.")
    checks.whole("samples", command.samples, minimum=2)
    if command.beside and command.what != "vqa":
        raise ValueError(f"beside={command.beside} compares answers: it is for `show vqa` alone.")
    wanted = QuestionTask if command.what == "vqa" else CaptionTask
    runs = []
    for name, path in (("run", command.run), *(("beside", each) for each in command.beside)):
        loaded = load_run(path)
        if not isinstance(loaded.task, wanted):
            good = "daquar or easy-vqa" if command.what == "vqa" else "flickr8k"
            raise ValueError(
                f"{name}={path} is of the task {loaded.config.task!r}: for `show {command.what}` take a run of {good}."
            )
        runs.append(loaded)
    torch.manual_seed(0)
    if command.beside:
        title, panels, picture = _answers(command, runs)
    else:
        title, panels, picture = (_answer if command.what == "vqa" else _caption)(command, runs[0])
    region_maps(title, panels, command.output, picture)
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    console.print(f"Drawn: {command.output}", soft_wrap=True)


@dataclass(frozen=True)
class _Said:
    """An answer to a question, how certain it is, and where the model looked."""

    question: str
    right: tuple[str, ...]
    answer: str
    p_value: float
    panels: list[Panel]

    @property
    def preference(self) -> int:
        """0 is best: right and certain, right and uncertain, wrong and uncertain, wrong and certain (BAM, figure 2)."""
        certain = self.p_value < THRESHOLD
        return int(not certain) if self.answer in self.right else 2 + int(certain)

    def __str__(self) -> str:
        sure = "p < 0.001" if self.p_value < 1e-3 else f"p = {self.p_value:.3f}"
        return f"{self.answer} ({sure}"


def _answer(command: ShowCommand, loaded: LoadedRun) -> tuple[str, list[list[Panel]], Tensor | None]:
    """Question and answer, the regions' weights, and the image if there is one."""
    said, picture = _said(command, loaded)
    return f"{said.question} → {said}; right: {said.right[0]})", [said.panels], picture


def _answers(command: ShowCommand, runs: list[LoadedRun]) -> tuple[str, list[list[Panel]], Tensor | None]:
    """The same question put to several models, a row of maps for each; the most preferred answers have a star."""
    found = [_said(command, loaded) for loaded in runs]
    pictures = [picture for _, picture in found]
    answers = [said for said, _ in found]
    for path, said in zip((command.run, *command.beside), answers, strict=True):
        if said.question != answers[0].question:
            raise ValueError(
                f"beside={path} has another question at example={command.example} ({said.question!r}, not "
                f"{answers[0].question!r}): take runs with the same data and test_examples."
            )
    best = min(said.preference for said in answers)
    lines, rows = [], []
    for loaded, said in zip(runs, answers, strict=True):
        star = "★ " if said.preference == best else ""
        lines.append(f"{star}{loaded.config.method}: {said})")
        first, *rest = said.panels
        rows.append([Panel(f"{loaded.config.method}\n{first.title}", first.weights), *rest])
    longest = max(len(row) for row in rows)
    rows = [[*row, *[Panel("", None)] * (longest - len(row))] for row in rows]
    return "\n".join([f"{answers[0].question} (right: {', '.join(answers[0].right)})", *lines]), rows, pictures[0]


def _said(command: ShowCommand, loaded: LoadedRun) -> tuple[_Said, Tensor | None]:
    """What one model answers, and the image if there is one."""
    task = loaded.task
    assert isinstance(task, QuestionTask)
    prepared = task.prepared
    place = _place(command.example, len(prepared.test), "questions")
    image, words, _ = (each[place : place + 1] for each in prepared.splits.test)
    variance = torch.tensor([command.noise])
    prediction = loaded.predict((image, words, variance), command.samples)
    answer = int(prediction.label)
    certainty = metrics.top_two_p_values(at_least_two(prediction.samples)).item()
    inputs = (*prepared.regions.of(image, variance), words)
    panels = []
    model = loaded.models[0]
    if isinstance(model, BottomUpVQA) and model.objective is not None:
        with torch.no_grad():
            prior, posterior = model.alignments(*inputs, prediction.label)
        panels.append(Panel("prior", prior[0]))
        if posterior is not None:
            panels.append(Panel(f"posterior, given “{prepared.answers[answer]}”", posterior[0]))
    else:
        if isinstance(model, BottomUpVQA):
            panels += _prior_panel(model, inputs)
        samples = _sampled(loaded, inputs, command.samples)[:, 0]
        panels += [Panel("mean", samples.mean(0)), Panel("standard deviation", samples.std(0, correction=0))]
    said = _Said(
        prepared.test.texts[place],
        tuple(dict.fromkeys(prepared.test.answers[place])),
        prepared.answers[answer],
        certainty,
        panels,
    )
    return said, task.picture(prepared.test.images[place])


def _caption(command: ShowCommand, loaded: LoadedRun) -> tuple[str, list[list[Panel]], None]:
    """The caption by beam search, and the regions' weights at every word of it: means above, standard deviations below."""
    task, model = loaded.task, loaded.models[0]
    assert isinstance(task, CaptionTask)
    assert isinstance(model, Captioner)
    prepared, options = task.prepared, task.options
    place = _place(command.example, len(prepared.test), "images")
    image = prepared.regions.find([prepared.test.images[place]], "the captions")
    variance = torch.tensor([command.noise])
    (numbers,) = Described(model, prepared.regions, image, variance).captions(options.beam, options.longest_caption)
    regions = prepared.regions.of(image, variance)
    words = [*prepared.words.decode(numbers), "(end)"]
    samples = _sampled(loaded, (*regions, torch.tensor([[model.bos, *numbers, model.eos]])), command.samples)[:, 0]
    rows = [
        [Panel(word, weights) for word, weights in zip(words, samples.mean(0), strict=True)],
        [Panel("±", weights) for weights in samples.std(0, correction=0)],
    ]
    for panel in _prior_panel(model, regions):
        rows[0].insert(0, panel)
        rows[1].insert(0, Panel("", None))
    return f"{prepared.test.images[place]}: {' '.join(words[:-1])}", rows, None


def _prior_panel(model: BottomUpVQA | Captioner, inputs: tuple[Tensor, ...]) -> list[Panel]:
    """The contextual prior's shares of the regions, if there is such a prior."""
    with torch.no_grad():
        prior = model.prior_weights(inputs[0], inputs[1])
    return [] if prior is None else [Panel("prior", prior[0])]


class _Weights(nn.Module):
    """A model whose output is what it looks at."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, regions: Tensor, mask: Tensor, words: Tensor) -> Tensor:
        assert isinstance(self.model, (MCAN, BottomUpVQA, Captioner))
        return self.model.region_weights(regions, mask, words)


def _sampled(loaded: LoadedRun, inputs: tuple[Tensor, ...], samples: int) -> Tensor:
    """Drawn weights, of all models, with dropout where the method predicts with it; one of each where nothing is drawn."""
    samples = samples if loaded.method.samples else 1
    drawn = [
        predict(_Weights(model), inputs, samples, likelihood="values", dropout=loaded.method.samples_dropout).samples
        for model in loaded.models
    ]
    return torch.cat(drawn)


def _place(example: int, count: int, what: str) -> int:
    if checks.whole("example", example) > count:
        raise ValueError(f"example={example} is not in the test set, which has {count} {what}: take 1 to {count}.")
    return example - 1
