"""`bayesattn table`: a paper's table, run where it is missing, printed beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from bayesattn.experiments.commands.console import Failure, progress_bars
from bayesattn.experiments.commands.listing import known_tables
from bayesattn.experiments.runs import RunConfig
from bayesattn.experiments.runs.sweep import sweep
from bayesattn.experiments.runs.workers import RunOutcome
from bayesattn.experiments.tables import TABLES, Table
from bayesattn.experiments.tables import results as kept_results
from bayesattn.experiments.tables.printing import in_terminal
from bayesattn.experiments.tables.summary import summarise
from bayesattn.support import checks


@dataclass(frozen=True)
class TableCommand:
    """A paper's table: runs what is missing, prints ours beside the paper's, keeps the figures in the results folder."""

    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """Name of a table."""
    list: bool = False
    """List the tables instead."""
    run: bool = True
    """Run what is missing; --no-run prints and keeps what is there."""
    budget: str | None = None
    """What is spent: a budget of the table (--list shows them); None: "paper", with --no-run every budget of which something is there."""
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


def make_table(command: TableCommand, console: Console) -> None:
    """`bayesattn table NAME …`."""
    if command.list:
        console.print(known_tables())
        return
    if command.name is None:
        raise ValueError(f"Say which table. {checks.suggestion('', TABLES)}")
    own = TABLES[checks.one_of("table", command.name, TABLES)]
    every = not command.run and command.budget is None
    budgets = own.budget_names() if every else [command.budget or "paper"]
    made = [_make(own, command, budget, console) for budget in budgets]
    if not any(made):
        remedy = "" if command.run else " Without --no-run it is run."
        console.print(f"There is nothing of {own.name} at budget {', '.join(budgets)}.{remedy}", soft_wrap=True)


def _make(own: Table, command: TableCommand, budget: str, console: Console) -> bool:
    """Run, print and keep a table at one budget; whether there is anything of it."""
    table = own.with_methods(command.methods)
    configs = table.configs(
        budget, seeds=command.seeds, tasks=command.only, methods=command.methods, epochs=command.epochs
    )
    kept = _kept(table, command, budget)
    known = kept.by_name if kept else {}
    missing = [config for config in configs if config.name not in known]
    failed = _sweep(missing, command, console) if command.run else []
    results = _collected(table, configs, command, budget, kept)
    if results.runs:
        for part in summarise(table, results):
            console.print(in_terminal(part))
    if command.epochs is not None:
        console.print("Not kept in the results: --epochs is not the budget's.")
    elif results.runs:
        to_write = results
        if table is not own:
            of_table = {config.name for config in own.configs(budget, seeds=command.seeds, tasks=command.only)}
            to_write = _collected(own, [each for each in configs if each.name in of_table], command, budget, kept)
        if to_write.runs:
            path = kept_results.write(to_write, command.results)
            console.print(f"Kept in {path}; `bayesattn render` writes the document.", soft_wrap=True)
        if added := table.methods[len(own.methods) :]:
            console.print(f"Not kept there, since they are no rows of {own.name}: {', '.join(added)}.", soft_wrap=True)
    if failed:
        raise Failure(f"{len(failed)} of {len(configs)} runs failed; the same command tries them again.")
    return bool(results.runs)


def _sweep(configs: list[RunConfig], command: TableCommand, console: Console) -> list[RunOutcome]:
    """Run what is missing, report what failed."""
    failed: list[RunOutcome] = []
    with progress_bars(console) as progress:
        bar = progress.add_task("runs", total=len(configs))

        def report(outcome: RunOutcome) -> None:
            progress.update(bar, advance=1, description=outcome.config.name)
            if outcome.error is not None:
                failed.append(outcome)
                progress.console.print(f"[red]failed[/red] {outcome.config.name}: {outcome.error}", soft_wrap=True)

        sweep(configs, command.folder, jobs=command.jobs, ray_address=command.ray, on_outcome=report)
    return failed


def _kept(table: Table, command: TableCommand, budget: str) -> kept_results.TableResults | None:
    """What the results folder has of this table: runs that need not be computed again, wherever their folders are."""
    path = command.results / kept_results.file_name(table.name, budget)
    return kept_results.read(path) if path.exists() else None


def _collected(
    table: Table,
    configs: list[RunConfig],
    command: TableCommand,
    budget: str,
    kept: kept_results.TableResults | None,
) -> kept_results.TableResults:
    """The figures of the runs asked for and, unless things are only tried out, of the rest of the table as far as it is there."""
    if command.epochs is not None:
        return kept_results.collect(table, budget, configs, command.folder)
    everything = {config.name: config for config in [*configs, *table.configs(budget)]}
    return kept_results.collect(table, budget, everything.values(), command.folder, kept)
