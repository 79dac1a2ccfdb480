"""A sweep on a real local Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.runs import configure, run
from bayesattn.experiments.runs.sweep import sweep


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
def test_ray_gives_the_results_of_single_runs_and_reports_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "nothing"))
    small = {"hidden": 8, "feedforward": 8}
    configs = [
        configure("toy-m1", "bam-wc", training={"epochs": 2, "samples": 2}, task_options=small),
        configure("pos", "mle", task_options={"ambiguity": False}),
    ]
    outcomes = sweep(configs, tmp_path / "ray", ray_address="local")
    result = outcomes[0].result
    assert result is not None
    assert result["metrics"] == run(configs[0], tmp_path / "alone")["metrics"]
    assert outcomes[1].result is None
    assert outcomes[1].error is not None
    assert "was not found" in outcomes[1].error
