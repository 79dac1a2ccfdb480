"""`bayesattn queue`: the runs of several tables, by priority, stopped and continued at any time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table as RichTable

from bayesattn.experiments.commands.console import Failure, progress_bars
from bayesattn.experiments.queue.ledger import Ledger
from bayesattn.experiments.queue.orders import Order, Queue
from bayesattn.experiments.queue.status import OrderStatus, status
from bayesattn.experiments.queue.work import LOOKS, Standing, work
from bayesattn.experiments.runs import RunFolder
from bayesattn.experiments.runs.workers import RunOutcome


@dataclass(frozen=True)
class QueueAdd:
    """Order the runs of a table; what is ordered already takes the new priority."""

    table: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TABLE")]
    """Name of a table."""
    budget: str = "paper"
    """What is spent, as in `bayesattn table`."""
    priority: int = 0
    """Higher comes first; of equals, what was ordered first."""
    only: tuple[str, ...] = ()
    """These tasks of the table only."""
    methods: tuple[str, ...] = ()
    """These rows of the table only."""
    seeds: int | None = None
    """Seeds of each method on each task; None: as the budget says."""


@dataclass(frozen=True)
class QueueWork:
    """Run what is ordered until nothing is left, each run with one thread; results are kept in the tables' files as they come."""

    jobs: int = 1
    """Runs at a time."""


@dataclass(frozen=True)
class QueueStatus:
    """What is finished, runs, waits and failed, and the core hours that are left."""


@dataclass(frozen=True)
class QueuePause:
    """Runs stop at their next safe point; returns when all have."""


@dataclass(frozen=True)
class QueueResume:
    """Go on after a pause."""


@dataclass(frozen=True)
class QueueRetry:
    """Try the runs that failed again."""


Action = (
    Annotated[QueueAdd, tyro.conf.subcommand("add")]
    | Annotated[QueueWork, tyro.conf.subcommand("work")]
    | Annotated[QueueStatus, tyro.conf.subcommand("status")]
    | Annotated[QueuePause, tyro.conf.subcommand("pause")]
    | Annotated[QueueResume, tyro.conf.subcommand("resume")]
    | Annotated[QueueRetry, tyro.conf.subcommand("retry")]
)


@tyro.conf.configure(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.CascadeSubcommandArgs)
@dataclass(frozen=True)
class QueueCommand:
    """One queue of runs for all tables."""

    action: Action
    queue: Path = Path("queue")
    """Folder of the queue."""
    folder: Path = Path("runs")
    """Where runs are kept, each in a folder of its own."""
    results: Path = field(default_factory=lambda: Path("results"))
    """Where the figures of tables are kept."""


def manage_queue(command: QueueCommand, console: Console) -> None:
    """`bayesattn queue …`."""
    queue = Queue(command.queue)
    match command.action:
        case QueueAdd() as wanted:
            order = Order(**vars(wanted))
            queue.add(order)
            console.print(f"Ordered: {order.table}, budget {order.budget}, {len(order.configs)} runs.")
        case QueueWork(jobs):
            _work(queue, command, jobs, console)
        case QueueStatus():
            _print_status(queue, Ledger(queue, command.folder, command.results), console)
        case QueuePause():
            queue.pause()
            _wait_until_quiet(queue, command.folder, console)
        case QueueResume():
            queue.resume()
            console.print("The queue goes on where a `bayesattn queue work` waits; else start one.")
        case QueueRetry():
            console.print(f"{queue.retry()} failed runs will be tried again.")


def _work(queue: Queue, command: QueueCommand, jobs: int, console: Console) -> None:
    with progress_bars(console) as progress:
        bar = progress.add_task("queue", total=None)

        def look(standing: Standing) -> None:
            words = "paused: bayesattn queue resume" if standing.paused else f"{len(standing.running)} running"
            progress.update(bar, total=standing.runs, completed=standing.done, description=words)

        def report(outcome: RunOutcome) -> None:
            name = outcome.config.name
            if outcome.result is not None:
                seconds = outcome.result["train_seconds"] + outcome.result["evaluate_seconds"]
                progress.console.print(f"finished {name}: {seconds:.0f} s", soft_wrap=True, highlight=False)
            elif outcome.error is not None:
                progress.console.print(f"[red]failed[/red] {name}: {outcome.error}", soft_wrap=True, highlight=False)

        work(queue, command.folder, command.results, jobs=jobs, on_outcome=report, on_look=look)
    if failures := queue.failures():
        raise Failure(
            f"{len(failures)} runs failed: `bayesattn queue status` shows them, `retry` has them tried again."
        )
    console.print("Nothing is left to run.")


def _print_status(queue: Queue, ledger: Ledger, console: Console) -> None:
    found = status(ledger)
    shown = RichTable(title="Queue, paused" if queue.is_paused else "Queue", caption="hours: core hours left")
    shown.add_column("priority, what", overflow="fold")
    for column in ("finished", "running", "waiting", "failed", "hours"):
        shown.add_column(column, justify="right", no_wrap=True)
    for each in found:
        counts = (each.finished, each.running, each.waiting, each.failed)
        order = each.order
        what = " ".join([f"{order.priority}: {order.table} {order.budget}", *order.only, *order.methods])
        shown.add_row(what, *map(str, counts), _hours([each]))
    console.print(shown)
    console.print(f"Core hours left in all: {_hours(found)}.", highlight=False)
    for name, error in queue.failures().items():
        console.print(f"[red]failed[/red] {name}: {error}", soft_wrap=True, highlight=False)


def _hours(of: list[OrderStatus]) -> str:
    hours, unknown = sum(each.hours_left for each in of), sum(each.unknown for each in of)
    left = sum(each.running + each.waiting for each in of)
    if unknown:
        return "unknown" if unknown == left else f"{hours:.2f} + {unknown} unknown"
    return f"{hours:.2f}"


def _wait_until_quiet(queue: Queue, folder: Path, console: Console) -> None:
    folders = {name: RunFolder.of(folder, config) for order in queue.orders() for name, config in order.configs.items()}
    said = False
    while running := [name for name, each in folders.items() if each.is_worked_on()]:
        if not said:
            console.print(f"Waiting for the next safe point of {', '.join(running)}.", soft_wrap=True)
            said = True
        time.sleep(LOOKS)
    console.print("The queue is paused; `bayesattn queue resume` lets it go on.")
