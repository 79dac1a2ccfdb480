"""What is left of a queue, in runs and in core hours."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, replace

from bayesattn.experiments.queue.ledger import Ledger
from bayesattn.experiments.queue.orders import Order
from bayesattn.experiments.runs import RunConfig, RunFolder


@dataclass(frozen=True)
class OrderStatus:
    """The runs of one order, counted."""

    order: Order
    finished: int
    failed: int
    running: int
    waiting: int
    hours_left: float
    """Of those whose cost can be told: from finished runs of the same kind, else from the epochs that it has done."""
    unknown: int
    """Runs whose cost nothing says yet."""


def status(ledger: Ledger) -> list[OrderStatus]:
    """The orders, the most urgent first; a run that two have is counted in the first."""
    orders = ledger.queue.orders()
    failures = ledger.queue.failures()
    costs = _Costs(ledger, orders)
    counted: set[str] = set()
    found = []
    for order in orders:
        finished = ledger.finished(order)
        own = {name: config for name, config in order.configs.items() if name not in counted}
        counted.update(own)
        left = {name: config for name, config in own.items() if name not in finished and name not in failures}
        running = [name for name, config in left.items() if RunFolder.of(ledger.folder, config).is_worked_on()]
        seconds = [costs.left(config) for config in left.values()]
        known = [each for each in seconds if each is not None]
        failed = sum(name in failures for name in own if name not in finished)
        counts = (sum(name in finished for name in own), failed, len(running), len(left) - len(running))
        found.append(OrderStatus(order, *counts, sum(known) / 3600, len(seconds) - len(known)))
    return found


class _Costs:
    """What runs cost in processor seconds: the mean of finished ones that differ in the seed, or else in the method's options."""

    def __init__(self, ledger: Ledger, orders: list[Order]):
        self.folder = ledger.folder
        self._seconds: dict[object, list[float]] = defaultdict(list)
        for order in orders:
            for name, result in ledger.finished(order).items():
                for kind in _kinds(order.configs[name]):
                    self._seconds[kind].append(result["train_seconds"] + result["evaluate_seconds"])

    def left(self, config: RunConfig) -> float | None:
        """The seconds that the rest of this run takes; None: nothing says."""
        history = RunFolder.of(self.folder, config).history()
        spent = history[-1]["seconds"] if history else 0.0
        for kind in _kinds(config):
            if kind in self._seconds:
                return max(0.0, statistics.fmean(self._seconds[kind]) - spent)
        epochs = config.training.epochs * config.make_method().members
        return spent * (epochs / len(history) - 1) if history else None


def _kinds(config: RunConfig) -> tuple[object, ...]:
    """What runs of about the same cost share, the nearest first."""
    alike = replace(config, seed=0)
    return alike.name, (config.task, config.method, repr(config.training), repr(config.task_options))
