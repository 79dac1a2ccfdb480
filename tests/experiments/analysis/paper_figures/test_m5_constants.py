"""M5 by its constants: the nearest to the thesis comes first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.analysis.paper_figures import m5_constants
from bayesattn.experiments.analysis.paper_figures.base import Places
from bayesattn.experiments.runs import RunConfig

THESIS = {"log_likelihood": -26.567, "var_mse": 16.943, "mse": 1.17}


class MadeUp(Places):
    """Results without runs: two waves have the thesis's figures, one has others."""

    def results_of(self, configs: Sequence[RunConfig], jobs: int = 1) -> list[dict[str, Any]]:
        assert {(config.task, config.method, config.training.epochs) for config in configs} == {("toy-m5", "mle", 100)}
        return [
            {
                "metrics": {
                    "log_likelihood": THESIS["log_likelihood"] + (0 if config.task_options.waves == 2 else 2),
                    "var_mse_given_last": THESIS["var_mse"],
                    "var_mse": 0.1,
                    "mse": THESIS["mse"],
                }
            }
            for config in configs
        ]


def test_the_nearest_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m5_constants, "TRIED", ((1, 2), (2,)))
    (path,) = m5_constants.try_constants(MadeUp(results=tmp_path))
    kept = json.loads(path.read_text())
    assert kept["thesis"] == THESIS
    first, second = kept["tried, nearest first"]
    assert (first["waves"], first["window"], first["distance"]) == (2, 2, pytest.approx(0))
    assert second["distance"] == pytest.approx(2 / 26.567 / 3**0.5)
    assert second["floor"]["var_mse_given_last"] == pytest.approx(0, abs=1e-6), "one wave is a constant"
    assert first["floor"]["var_mse_given_last"] > 0.005
    assert kept["command"] == "bayesattn figure thesis-m5"
