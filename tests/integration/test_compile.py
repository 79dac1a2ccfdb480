"""torch.compile gives the loss, the KL and the gradients of eager mode, in one graph."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.training_steps import POSTERIORS

HERE = Path(__file__).parent


def run(backend: str, *names: str) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "compiled.py", backend, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_traced_as_one_graph_for_every_posterior() -> None:
    run("aot_eager", *POSTERIORS)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's CPU compiler needs g++")
def test_compiled_for_every_posterior() -> None:
    run("inductor", *POSTERIORS)
