"""What of a queue's runs is finished, and their results in the files of the tables."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from bayesattn.experiments.queue.orders import Order, Queue
from bayesattn.experiments.runs import RunConfig, RunFolder
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables import results as kept_results


class Ledger:
    """The runs of a queue: in their folders below `folder`, and kept in the tables' files in `results`."""

    def __init__(self, queue: Queue, folder: Path, results: Path):
        self.queue = queue
        self.folder = Path(folder)
        self.results = Path(results)
        self._finished: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}

    def finished(self, order: Order) -> dict[str, dict[str, Any]]:
        """The results of the order's runs that have one, by name."""
        seen = self._finished.get((order.table, order.budget))
        if seen is None:
            kept = self._kept(order)
            seen = self._finished[order.table, order.budget] = {} if kept is None else dict(kept.by_name)
        for name, config in order.configs.items():
            if name not in seen and (result := RunFolder.of(self.folder, config).finished()) is not None:
                seen[name] = result
        return {name: seen[name] for name in order.configs if name in seen}

    def waiting(self, orders: list[Order], without: Collection[str]) -> dict[str, RunConfig]:
        """The runs to be started, the most urgent first."""
        found: dict[str, RunConfig] = {}
        for order in orders:
            finished = self.finished(order)
            for name, config in order.configs.items():
                if name not in finished and name not in without:
                    found.setdefault(name, config)
        return found

    def keep(self, orders: list[Order], run: str | None = None) -> None:
        """Write the files of all tables of these orders, or of those that this run is of."""
        chosen = [order for order in orders if run is None or run in order.configs]
        for table, budget in dict.fromkeys((order.table, order.budget) for order in chosen):
            configs = {config.name: config for config in TABLES[table].configs(budget)}
            for order in orders:
                if (order.table, order.budget) == (table, budget):
                    configs |= order.configs
            kept = self._kept(Order(table, budget))
            collected = kept_results.collect(TABLES[table], budget, configs.values(), self.folder, kept)
            if collected.runs:
                kept_results.write(collected, self.results)

    def _kept(self, order: Order) -> kept_results.TableResults | None:
        path = self.results / kept_results.file_name(order.table, order.budget)
        return kept_results.read(path) if path.exists() else None
