"""Working on a queue: so many runs at a time, the most urgent first, until none is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bayesattn.experiments.queue.ledger import Ledger
from bayesattn.experiments.queue.orders import Queue
from bayesattn.experiments.runs.workers import RunOutcome, Workers
from bayesattn.support import checks

LOOKS = 0.5
"""Seconds between two looks at the queue's folder."""

TRIALS = 3
"""A run whose process is killed, perhaps for want of memory, is started so often before it counts as failed."""


@dataclass(frozen=True)
class Standing:
    """How many runs there are, how many of them need nothing more, and which run now."""

    runs: int
    done: int
    running: tuple[str, ...]
    paused: bool


def work(
    queue: Queue,
    folder: Path,
    results: Path,
    *,
    jobs: int = 1,
    on_outcome: Callable[[RunOutcome], object] = lambda outcome: None,
    on_look: Callable[[Standing], object] = lambda standing: None,
) -> None:
    """Run what is ordered, also what is ordered meanwhile. Every result is kept in the tables' files at once; a failed run is recorded and
    stops no other one. While the queue is paused, this waits.
    """
    checks.whole("jobs", jobs)
    started: Counter[str] = Counter()
    ledger = Ledger(queue, folder, results)
    with queue.worked_on(), Workers(Path(folder), queue.pause_file) as workers:
        ledger.keep(queue.orders())  # what had finished when this was killed
        while True:
            orders = queue.orders()
            running = {config.name for config, _ in workers.running.values()}
            waiting = ledger.waiting(orders, {*running, *queue.failures()})
            paused = queue.is_paused
            for name, config in list(waiting.items())[: 0 if paused else max(0, jobs - len(running))]:
                workers.start(config)
                started[name] += 1
                running.add(name)
                del waiting[name]
            names = {name for order in orders for name in order.configs}
            left = len(waiting) + len(running & names)
            on_look(Standing(len(names), len(names) - left, tuple(sorted(running)), paused))
            if not waiting and not running:
                return
            if not running:
                time.sleep(LOOKS)
            for outcome in workers.ended(LOOKS):
                name = outcome.config.name
                if outcome.result is not None:
                    ledger.keep(orders, name)
                elif outcome.error is not None and not (outcome.died and started[name] < TRIALS):
                    queue.record_failure(name, outcome.error)
                on_outcome(outcome)
