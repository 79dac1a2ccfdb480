"""The folder of a queue.

orders.json     what is to be run, a list that may also be edited by hand
failures.json   runs that failed, and how; they are not tried again before `retry`
paused          there while the queue is paused
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.experiments.runs import RunConfig
from bayesattn.experiments.tables import TABLES
from bayesattn.support import checks, json_text
from bayesattn.support.files import remove_unfinished, write_atomically


@dataclass(frozen=True)
class Order:
    """The runs of one table, or of a part of it, at one budget."""

    table: str
    budget: str = "paper"
    priority: int = 0
    """Higher comes first; of equals, what was ordered first."""
    only: tuple[str, ...] = ()
    """Tasks; none: all."""
    methods: tuple[str, ...] = ()
    """Rows of the table; none: all."""
    seeds: int | None = None
    """None: as the budget says."""

    @functools.cached_property
    def configs(self) -> dict[str, RunConfig]:
        """The runs by their names, first seeds first."""
        table = TABLES[checks.one_of("table", self.table, TABLES)]
        found = table.configs(self.budget, seeds=self.seeds, tasks=self.only, methods=self.methods)
        return {config.name: config for config in found}

    @property
    def what(self) -> tuple[Any, ...]:
        """All but the priority."""
        return (self.table, self.budget, self.only, self.methods, self.seeds)


class Queue:
    """A folder of orders. Any number of processes may look and order; one works."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.pause_file = self.folder / "paused"
        self._known: dict[Order, Order] = {}

    def orders(self) -> list[Order]:
        """The orders, the most urgent first."""
        found = [
            self._known.setdefault(order, order) for order in self._read_orders()
        ]  # whose configs are made already
        return sorted(found, key=lambda order: -order.priority)

    def add(self, order: Order) -> None:
        """Order; what was ordered before takes the new priority."""
        if not order.configs:
            raise ValueError(f"{order.table} has no runs at budget {order.budget!r} with these options: name others.")
        with self._changed():
            orders = {each.what: each for each in self._read_orders()} | {order.what: order}
            values = [dataclasses.asdict(each) for each in orders.values()]
            write_atomically(self.folder / "orders.json", json.dumps(values, indent=2) + "\n")

    @property
    def is_paused(self) -> bool:
        """Whether no run may be started, and those that run are to stop."""
        return self.pause_file.exists()

    def pause(self) -> None:
        """Runs stop at their next safe point, and none is started."""
        write_atomically(self.pause_file, "")

    def resume(self) -> None:
        """Go on."""
        self.pause_file.unlink(missing_ok=True)

    def failures(self) -> dict[str, str]:
        """The runs that failed, and how."""
        path = self.folder / "failures.json"
        return json_text.read(path) if path.exists() else {}

    def record_failure(self, run: str, error: str) -> None:
        """Keep that this run failed."""
        with self._changed():
            self._write_failures(self.failures() | {run: error})

    def retry(self) -> int:
        """Forget the failures, so that those runs are tried again; how many they were."""
        with self._changed():
            forgotten = len(self.failures())
            self._write_failures({})
        return forgotten

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Be the one process that works; refused while there is another. A process that dies gives its place back."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".working").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"Another process works on the queue {self.folder}: end it first, or name another queue with --queue."
                ) from None
            yield

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Nobody else changes the files meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            remove_unfinished(self.folder)
            yield

    def _write_failures(self, failures: dict[str, str]) -> None:
        write_atomically(self.folder / "failures.json", json.dumps(failures, indent=2) + "\n")

    def _read_orders(self) -> list[Order]:
        path = self.folder / "orders.json"
        if not path.exists():
            return []
        try:
            return [_order(values) for values in json_text.read(path)]
        except (AttributeError, TypeError, ValueError) as problem:
            raise ValueError(
                f"{path} is not a list of orders ({problem}): mend it, or remove it and order again."
            ) from None


def _order(values: Any) -> Order:
    if not isinstance(values, dict):
        raise ValueError(f"an order must be a JSON object, not {values!r}")
    plain: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
    order = Order(**plain)
    if not isinstance(order.priority, int):
        raise ValueError(f"priority must be a whole number, got {order.priority!r}")
    return order
