"""`bayesattn run`: one run, with the options of its task and its method."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

import torch
import tyro
from rich.console import Console
from rich.table import Table as RichTable

from bayesattn.experiments.commands.console import Failure, progress_bars
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs import RunConfig, RunFolder, run
from bayesattn.experiments.tasks import TASKS, Training
from bayesattn.support import checks

TaskOptions = TypeVar("TaskOptions")
MethodOptions = TypeVar("MethodOptions")


@dataclass(frozen=True)
class RunCommand:
    """One run. `bayesattn run TASK METHOD --help` lists every hyper-parameter of the two; `bayesattn list` lists the names."""

    task: tyro.conf.Positional[str]
    """Name of a task."""
    method: tyro.conf.Positional[str]
    """Name of a method."""


@dataclass(frozen=True)
class RunOptions(Generic[TaskOptions, MethodOptions]):
    """One run: a progress bar, metrics, a result on disk. A finished run is read, a stopped one goes on."""

    task_options: TaskOptions
    method_options: MethodOptions
    training: Training
    seed: int = 0
    """Decides the start, the order of the data and all noise."""
    folder: Path = Path("runs")
    """Where runs are kept, each in a folder of its own."""
    threads: int = 1
    """Processor threads. The models are small: more than one is seldom faster."""
    checkpoint_seconds: float = 10.0
    """Least time between two checkpoints, which are kept at the end of an epoch."""


def say_how_to_run(command: RunCommand, console: Console) -> None:
    """`bayesattn run` whose first words are not a task and a method: its options depend on the two."""
    raise Failure("Name the task and the method first: bayesattn run TASK METHOD [options].")


def parse_run(arguments: list[str]) -> tuple[RunConfig, RunOptions[Any, Any]]:
    """What `TASK METHOD …` asks for: the options are those of this task and this method."""
    task, method = arguments[0], arguments[1]
    task_entry, method_entry = TASKS.entry(task), METHODS.entry(method)
    taken = {each.name for kind in (Training, RunOptions) for each in fields(kind)}
    task_options = _apart(task_entry.options, "task", taken)
    method_options = _apart(method_entry.options, "method", taken | {each.name for each in fields(task_entry.options)})
    kind: Any = RunOptions[type(task_options), type(method_options)]
    options = tyro.cli(
        kind,
        prog=f"bayesattn run {task} {method}",
        args=arguments[2:],
        default=RunOptions(
            task_options=task_options, method_options=method_options, training=TASKS.create(task).training
        ),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    config = RunConfig(
        task,
        method,
        checks.whole("seed", options.seed, minimum=0),
        options.training,
        _as(type(task_entry.options), options.task_options),
        _as(type(method_entry.options), options.method_options),
    )
    return config, options


def start_run(arguments: list[str], console: Console) -> None:
    """`bayesattn run TASK METHOD …`."""
    config, options = parse_run(arguments)
    what = f"{config.task} {config.method}"
    torch.set_num_threads(checks.whole("threads", options.threads))
    first = int(os.environ.get("RANK", "0")) == 0  # under accelerate launch every process comes here
    folder = RunFolder.of(options.folder, config)
    was_finished = folder.result() is not None
    epochs = config.training.epochs * config.make_method().members
    with progress_bars(console, enabled=first and not was_finished) as progress:
        bar = progress.add_task(what, total=epochs)
        result = run(
            config,
            options.folder,
            checkpoint_seconds=options.checkpoint_seconds,
            on_epoch=lambda line: progress.update(
                bar,
                completed=line["member"] * config.training.epochs + line["epoch"],
                description=f"{what}, loss {line['loss']:.3f}",
            ),
        )
    if first:
        _print_result(result, folder, was_finished, console)


def _apart(options: Any, owner: str, taken: set[str]) -> Any:
    """The same options; those whose name is taken are called with their owner's in front, such as `--method-samples`."""
    shared = [each for each in fields(options) if each.name in taken]
    if not shared:
        return options
    hints = get_type_hints(type(options), include_extras=True)
    called = [
        (
            each.name,
            Annotated[hints[each.name], tyro.conf.arg(name=f"{owner}-{each.name.replace('_', '-')}")],
            field(default=getattr(options, each.name)),
        )
        for each in shared
    ]
    kind = make_dataclass(type(options).__name__, called, bases=(type(options),), frozen=True)
    kind.__doc__ = type(options).__doc__
    return _as(kind, options)


def _as(kind: type, options: Any) -> Any:
    """These options as another dataclass of the same fields."""
    return (
        options if type(options) is kind else kind(**{each.name: getattr(options, each.name) for each in fields(kind)})
    )


def _print_result(result: dict[str, Any], folder: RunFolder, was_finished: bool, console: Console) -> None:
    shown = RichTable("metric", "value", title=folder.path.name)
    for name, value in result["metrics"].items():
        shown.add_row(name, f"{value:.4f}")
    console.print(shown)
    for name, value in result["details"].items():
        console.print(f"{name}: {json.dumps(value, ensure_ascii=False, indent=2)}", soft_wrap=True, highlight=False)
    state = "Had finished before" if was_finished else f"Trained in {result['train_seconds']:.0f} processor seconds"
    console.print(f"{state}; kept in {folder.path}.", soft_wrap=True)
