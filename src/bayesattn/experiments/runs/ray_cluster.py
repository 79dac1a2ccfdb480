"""A sweep on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesattn.experiments.runs.config import RunConfig
from bayesattn.experiments.runs.folder import RunFolder
from bayesattn.experiments.runs.workers import RunOutcome, run_alone
from bayesattn.support.files import write_atomically


def on_ray(configs: list[RunConfig], parent: Path, address: str) -> Iterator[RunOutcome]:
    """Each run is a task of one processor. Its folder comes back with the answer: no shared disk is needed."""
    try:
        import ray
        from ray.exceptions import RayError
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Sweeps on a cluster need Ray: pip install 'bayesattn[ray]'.", name="ray") from None
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(address=address, log_to_driver=False)
    try:
        work = ray.remote(num_cpus=1, max_retries=2)(_run_and_pack)
        path = str(Path(parent).resolve())
        pending: dict[Any, RunConfig] = {work.remote(config.to_json(), path): config for config in configs}
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1)
            config = pending.pop(done[0])
            try:
                files = ray.get(done[0])
            except RayError as problem:
                yield RunOutcome(config, None, str(problem).strip().splitlines()[-1])
                continue
            folder = RunFolder.of(parent, config)
            if folder.result() is None:  # the worker's disk is not ours
                for name in sorted(files, key=lambda name: name == "result.json"):  # the result last: it says finished
                    write_atomically(folder.path / name, files[name])
            yield RunOutcome(config, folder.result())
    finally:
        if started_here:
            ray.shutdown()


def _run_and_pack(values: dict[str, Any], parent: str) -> dict[str, bytes]:
    run_alone(values, parent)
    folder = RunFolder.of(Path(parent), RunConfig.from_json(values))
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if not path.name.startswith(".")}
