"""Two processes on halves of a batch get the mean of the gradients that each half has alone, the KL's included."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.processes import started


@pytest.mark.slow
@pytest.mark.parametrize("way", ["replicated", "sharded"])
def test_two_processes_agree_with_one(tmp_path: Path, way: str) -> None:
    script = Path(__file__).parent / "distributed.py"
    with ExitStack() as stack:
        workers = [
            stack.enter_context(started([script, str(rank), tmp_path / "store", way], stderr=subprocess.PIPE))
            for rank in range(2)
        ]
        errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(errors)[-3000:]
