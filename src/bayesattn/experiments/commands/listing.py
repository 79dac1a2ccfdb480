"""`bayesattn list`: tasks, methods, tables, and which data is found."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable

from bayesattn.experiments.data.files import locate
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tasks import TASKS


@dataclass(frozen=True)
class ListCommand:
    """Tasks, methods, tables, and which data is found."""


def list_names(command: ListCommand, console: Console) -> None:
    """`bayesattn list`."""
    tasks = _whole_words("Tasks", "task", "what", "data")
    for entry in TASKS:
        missing = [file.path for file in entry.make(entry.options).files if locate(file) is None]
        tasks.add_row(entry.name, entry.description, "missing: " + ", ".join(missing) if missing else "found")
    methods = _whole_words("Methods", "method", "what")
    for entry in METHODS:
        methods.add_row(entry.name, entry.description)
    console.print(tasks, methods, known_tables())


def known_tables() -> RichTable:
    """The tables, their tasks and their budgets."""
    shown = _whole_words("Tables", "table", "what", "tasks", "budgets")
    for table in TABLES.values():
        shown.add_row(table.name, table.title, ", ".join(table.tasks()), ", ".join(table.budget_names()))
    return shown


def _whole_words(title: str, *columns: str) -> RichTable:
    """A table in which a word that is too long for its column goes on in the next line and is not cut."""
    return RichTable(*(Column(name, overflow="fold") for name in columns), title=title)
