"""The way of one training step through the files of the library stays short: benchmarks/step_path.py counts it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step_path.py"


@pytest.mark.usefixtures("unchecked")  # the checks of shapes call functions of their own
def test_a_step_touches_few_files() -> None:
    specification = importlib.util.spec_from_file_location("step_path", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    files = script.files_called(script.training_step(script.LENGTHS["reference"]))
    found = script.count(files)
    assert {"attention/functional.py", "posteriors/weibull.py", "objective.py"} <= set(files)
    assert found["files"] <= 16, sorted(set(files))
    assert found["changes of file"] <= 45, files
