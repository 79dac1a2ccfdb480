"""Many runs: in local processes, or on a Ray cluster. A failed run is reported and does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bayesattn.experiments.runs.config import RunConfig
from bayesattn.experiments.runs.folder import RunFolder
from bayesattn.experiments.runs.workers import RunOutcome, Workers
from bayesattn.support import checks


def sweep(
    configs: Sequence[RunConfig],
    parent: Path,
    *,
    jobs: int = 1,
    ray_address: str | None = None,
    on_outcome: Callable[[RunOutcome], object] = lambda outcome: None,
) -> list[RunOutcome]:
    """The outcome of every config, in order; what has finished before is read and not computed again.

    Each run has a process and one thread of its own, `jobs` at a time; with `ray_address` each is a task of one processor on
    that cluster ("auto": the one that this machine belongs to, "local": one that is started here).
    """
    checks.whole("jobs", jobs)
    outcomes: dict[str, RunOutcome] = {}
    missing = []
    for config in configs:
        result = RunFolder.of(parent, config).finished()
        if result is None:
            missing.append(config)
        else:
            outcomes[config.name] = RunOutcome(config, result)
    for outcome in outcomes.values():
        on_outcome(outcome)
    if ray_address is None:
        fresh = _in_processes(missing, parent, jobs)
    else:
        from bayesattn.experiments.runs.ray_cluster import on_ray

        fresh = on_ray(missing, parent, ray_address)
    for outcome in fresh:
        outcomes[outcome.config.name] = outcome
        on_outcome(outcome)
    return [outcomes[config.name] for config in configs]


def _in_processes(configs: list[RunConfig], parent: Path, jobs: int) -> Iterator[RunOutcome]:
    waiting = list(reversed(configs))
    with Workers(parent) as workers:
        while waiting or workers.running:
            while waiting and len(workers.running) < jobs:
                workers.start(waiting.pop())
            yield from workers.ended()
