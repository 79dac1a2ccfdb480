"""Two processes on halves of a batch get the mean of the gradients that each half has alone, the KL's included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    script = Path(__file__).parent / "distributed.py"
    workers = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(errors)[-3000:]
