"""What the commands `list`, `run`, `table`, `render` and `report` do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from bayesattn import checks
from bayesattn.data.files import locate
from bayesattn.methods import METHODS
from bayesattn.report.of_model import model_page
from bayesattn.report.of_runs import runs_page
from bayesattn.report.of_table import table_page
from bayesattn.report.page import Page, joined, write_page
from bayesattn.runs import RunConfig, RunFolder, run
from bayesattn.runs.sweep import Outcome, sweep
from bayesattn.tables import TABLES, Table
from bayesattn.tables import results as kept_results
from bayesattn.tables.document import kept_files, render
from bayesattn.tables.show import in_terminal
from bayesattn.tables.summary import summarise
from bayesattn.tasks import TASKS, Training

TaskOptions = TypeVar("TaskOptions")
MethodOptions = TypeVar("MethodOptions")


class Failure(Exception):
    """Something failed in a way that was said already: end with an exit code, without a traceback."""


@dataclass(frozen=True)
class ListCommand:
    """Tasks, methods, tables, and which data is found."""


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


@dataclass(frozen=True)
class TableCommand:
    """A paper's table: runs what is missing, prints ours beside the paper's, keeps the figures in the results folder."""

    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """Name of a table."""
    list: bool = False
    """List the tables instead."""
    run: bool = True
    """Run what is missing; --no-run prints and keeps what is there."""
    budget: str = "paper"
    """What is spent: "paper", or the name of a smaller budget of the table (--list shows them)."""
    seeds: int | None = None
    """Seeds of each method on each task; None: as the budget says."""
    only: tuple[str, ...] = ()
    """Run these tasks of the table only."""
    methods: tuple[str, ...] = ()
    """Run these methods only; others than the table's get a row too, which is not kept in its results."""
    epochs: int | None = None
    """Other epochs than the budget's, to try things out: the figures are printed but not kept."""
    jobs: int = 1
    """Runs at a time, each a process with one thread."""
    ray: str | None = None
    """Address of a Ray cluster to run on ("auto", "local", "ray://host:port")."""
    folder: Path = Path("runs")
    """Where runs are kept, each in a folder of its own."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""


@dataclass(frozen=True)
class RenderCommand:
    """Write the document of all kept results."""

    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""
    output: Path = field(default_factory=lambda: Path("docs/results.md"))
    """The document."""


@dataclass(frozen=True)
class ReportCommand:
    """A report: one HTML file to open in a browser, that needs nothing else."""

    targets: tyro.conf.Positional[tuple[str, ...]] = ()
    """A table's name; or folders of runs of one task; or a folder that `save_pretrained` of a converted model wrote. None: every
    table that has results."""
    sentences: Path | None = None
    """For a saved model: a text file with a sentence on each line."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The file."""


def write_report(command: ReportCommand, console: Console) -> None:
    """`bayesattn report …`."""
    path = write_page(_report_page(command), command.output)
    console.print(f"Written: {path}. Open it in a browser: {path.resolve().as_uri()}", soft_wrap=True)


def _report_page(command: ReportCommand) -> Page:
    folders = [Path(target) for target in command.targets]
    if command.sentences is not None:
        if len(folders) != 1:
            raise ValueError(f"--sentences goes with one folder of a saved model, got {len(folders)} targets.")
        return model_page(folders[0], command.sentences)
    if folders and all((folder / "result.json").exists() for folder in folders):
        return runs_page(folders)
    if len(folders) == 1 and (folders[0] / "config.json").exists():
        raise ValueError(
            f"{folders[0]} holds no finished run. If it is a saved model, say with --sentences FILE what to run it on; if it is a "
            "run, let `bayesattn run` finish it."
        )
    names = [checks.one_of("target", target, TABLES) for target in command.targets] or list(TABLES)
    if command.targets:
        return joined([table_page(name, command.results) for name in names])
    found = {results.table for results in map(kept_results.read, kept_files(command.results))}
    if not found:
        raise FileNotFoundError(f"There are no results in {command.results}: make them with `bayesattn table NAME`.")
    return joined([table_page(name, command.results) for name in names if name in found])


def list_names(command: ListCommand, console: Console) -> None:
    """`bayesattn list`."""
    tasks = RichTable("task", "what", "data", title="Tasks")
    for entry in TASKS:
        missing = [file.path for file in entry.make(entry.options).files if locate(file) is None]
        tasks.add_row(entry.name, entry.description, "missing: " + ", ".join(missing) if missing else "found")
    methods = RichTable("method", "what", title="Methods")
    for entry in METHODS:
        methods.add_row(entry.name, entry.description)
    console.print(tasks, methods, _tables())


def say_how_to_run(command: RunCommand, console: Console) -> None:
    """`bayesattn run` whose first words are not a task and a method: its options depend on the two."""
    raise Failure("Name the task and the method first: bayesattn run TASK METHOD [options].")


def start_run(arguments: list[str], console: Console) -> None:
    """`bayesattn run TASK METHOD …`: the options are those of this task and this method."""
    task, method = arguments[0], arguments[1]
    task_entry, method_entry = TASKS.entry(task), METHODS.entry(method)
    kind: Any = RunOptions[type(task_entry.options), type(method_entry.options)]
    options = tyro.cli(
        kind,
        prog=f"bayesattn run {task} {method}",
        args=arguments[2:],
        default=RunOptions(
            task_options=task_entry.options,
            method_options=method_entry.options,
            training=TASKS.create(task).training,
        ),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    config = RunConfig(
        task,
        method,
        checks.whole("seed", options.seed, minimum=0),
        options.training,
        options.task_options,
        options.method_options,
    )
    torch.set_num_threads(checks.whole("threads", options.threads))
    first = int(os.environ.get("RANK", "0")) == 0  # under accelerate launch every process comes here
    folder = RunFolder.of(options.folder, config)
    was_finished = folder.result() is not None
    epochs = config.training.epochs * config.make_method().members
    with _progress(console, enabled=first and not was_finished) as progress:
        bar = progress.add_task(f"{task} {method}", total=epochs)
        result = run(
            config,
            options.folder,
            checkpoint_seconds=options.checkpoint_seconds,
            on_epoch=lambda line: progress.update(
                bar,
                completed=line["member"] * config.training.epochs + line["epoch"],
                description=f"{task} {method}, loss {line['loss']:.3f}",
            ),
        )
    if first:
        _print_result(result, folder, was_finished, console)


def make_table(command: TableCommand, console: Console) -> None:
    """`bayesattn table NAME …`."""
    if command.list:
        console.print(_tables())
        return
    if command.name is None:
        raise ValueError(f"Say which table. {checks.suggestion('', TABLES)}")
    own = TABLES[checks.one_of("table", command.name, TABLES)]
    table = own.with_methods(command.methods)
    configs = table.configs(
        command.budget, seeds=command.seeds, tasks=command.only, methods=command.methods, epochs=command.epochs
    )
    kept = _kept(table, command)
    known = kept.by_name() if kept else {}
    missing = [config for config in configs if config.name not in known]
    failed = _sweep(missing, command, console) if command.run else []
    results = _collected(table, configs, command, kept)
    for part in summarise(table, results):
        console.print(in_terminal(part))
    if command.epochs is None:
        of_table = {config.name for config in own.configs(command.budget, seeds=command.seeds, tasks=command.only)}
        to_keep = [config for config in configs if config.name in of_table]
        path = kept_results.write(_collected(own, to_keep, command, kept), command.results)
        console.print(f"Kept in {path}; `bayesattn render` writes the document.", soft_wrap=True)
        if added := table.methods[len(own.methods) :]:
            console.print(f"Not kept there, since they are no rows of {own.name}: {', '.join(added)}.", soft_wrap=True)
    else:
        console.print("Not kept in the results: --epochs is not the budget's.")
    if failed:
        raise Failure(f"{len(failed)} of {len(configs)} runs failed; the same command tries them again.")


def render_document(command: RenderCommand, console: Console) -> None:
    """`bayesattn render`."""
    console.print(f"Written: {render(command.results, command.output)}", soft_wrap=True)


def _sweep(configs: list[RunConfig], command: TableCommand, console: Console) -> list[Outcome]:
    """Run what is missing, report what failed."""
    failed: list[Outcome] = []
    with _progress(console) as progress:
        bar = progress.add_task("runs", total=len(configs))

        def report(outcome: Outcome) -> None:
            progress.update(bar, advance=1, description=outcome.config.name)
            if outcome.error is not None:
                failed.append(outcome)
                progress.console.print(f"[red]failed[/red] {outcome.config.name}: {outcome.error}", soft_wrap=True)

        sweep(configs, command.folder, jobs=command.jobs, ray_address=command.ray, on_outcome=report)
    return failed


def _kept(table: Table, command: TableCommand) -> kept_results.TableResults | None:
    """What the results folder has of this table: runs that need not be computed again, wherever their folders are."""
    path = command.results / kept_results.file_name(table.name, command.budget)
    return kept_results.read(path) if path.exists() else None


def _collected(
    table: Table, configs: list[RunConfig], command: TableCommand, kept: kept_results.TableResults | None
) -> kept_results.TableResults:
    """The figures of the runs asked for and, unless things are only tried out, of the rest of the table as far as it is there."""
    if command.epochs is not None:
        return kept_results.collect(table, command.budget, configs, command.folder)
    everything = {config.name: config for config in [*configs, *table.configs(command.budget)]}
    return kept_results.collect(table, command.budget, everything.values(), command.folder, kept)


def _tables() -> RichTable:
    shown = RichTable("table", "what", "tasks", "budgets", title="Tables")
    for table in TABLES.values():
        shown.add_row(table.name, table.title, ", ".join(table.tasks()), ", ".join(table.budget_names()))
    return shown


def _print_result(result: dict[str, Any], folder: RunFolder, was_finished: bool, console: Console) -> None:
    shown = RichTable("metric", "value", title=folder.path.name)
    for name, value in result["metrics"].items():
        shown.add_row(name, f"{value:.4f}")
    console.print(shown)
    for name, value in result["details"].items():
        console.print(f"{name}: {json.dumps(value, ensure_ascii=False, indent=2)}", soft_wrap=True, highlight=False)
    state = "Had finished before" if was_finished else f"Trained in {result['train_seconds']:.0f} processor seconds"
    console.print(f"{state}; kept in {folder.path}.", soft_wrap=True)


@contextmanager
def _progress(console: Console, enabled: bool = True) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not enabled) as progress:
        yield progress
