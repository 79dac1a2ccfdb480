"""One series, and what methods predict of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesattn.experiments.analysis.paper_figures import series
from bayesattn.experiments.analysis.paper_figures.base import Places
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Budget
from bayesattn.experiments.tasks import TASKS


@pytest.mark.slow
def test_the_figure_has_the_series_and_each_methods_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Budget(seeds=1, training={"epochs": 2, "samples": 2}, task_options={"hidden": 8, "feedforward": 8})
    monkeypatch.setitem(TABLES["thesis-3.11"].budgets, "tiny", {"toy-m3": tiny})
    monkeypatch.setattr(series, "BUDGET", "tiny")
    monkeypatch.setattr(series, "SHOWN", {"3.11": ("attn-gaussian",)})
    lines: list[str] = []
    places = Places(tmp_path / "runs", tmp_path / "results", tmp_path / "images", lines.append)
    data, drawn = series.draw_series(places, "3.11")
    kept = json.loads(data.read_text())
    assert lines[0] == "2 runs"
    targets = TASKS.create("toy-m3").load().test[1]
    assert kept["values"] == pytest.approx(targets[kept["series"]].tolist())
    assert set(kept["methods"]) == {"mle", "attn-gaussian"}
    for said in kept["methods"].values():
        of_mean = [(m - x) ** 2 for m, x in zip(said["mean"], kept["values"], strict=True)]
        assert said["mse_of_mean"] == pytest.approx(sum(of_mean) / 24)
        assert said["mse"] == pytest.approx(said["mse_of_mean"] + sum(sd**2 for sd in said["sd"]) / 24)
    assert drawn.read_bytes()[:4] == b"\x89PNG"
    again, _ = series.draw_series(places, "3.11")
    assert json.loads(again.read_text())["methods"] == kept["methods"], "the same draws"
