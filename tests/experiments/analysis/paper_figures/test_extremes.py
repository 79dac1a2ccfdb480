"""The surest and least sure, from finished runs and from what was kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bayesattn.experiments.analysis.paper_figures import extremes
from bayesattn.experiments.analysis.paper_figures.base import Places
from bayesattn.experiments.runs import RunConfig, RunFolder


def ends(task: str, entropy: float) -> dict[str, Any]:
    def shown(value: float) -> list[dict[str, Any]]:
        if task == "pos":
            return [{"entropy": value, "sentence": "Wow | wow", "tokens": "wow | wow"}] * 5
        return [{"entropy": value, "place": 3, "said": 1, "label": 7}] * 5

    return {"highest_entropy": shown(entropy), "lowest_entropy": shown(entropy / 10)}


class Written(Places):
    """Runs that are there without being run."""

    def results_of(self, configs: Sequence[RunConfig], jobs: int = 1) -> list[dict[str, Any]]:
        results = []
        for config in configs:
            result = {"config": config.to_json(), "metrics": {}, "details": ends(config.task, 2.0), "commit": "abc"}
            path = RunFolder.of(self.runs, config).path / "result.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result))
            results.append(result)
        return results


def test_the_thesiss_methods_are_run_others_are_found_and_older_ones_stay(tmp_path: Path) -> None:
    places = Written(tmp_path / "runs", tmp_path / "results", tmp_path / "docs")
    before = {"methods": {"swag": ends("pos", 1.0), "laplace": ends("pos", 9.0)}}
    (tmp_path / "results").mkdir()
    (tmp_path / "results/thesis-sentences.json").write_text(json.dumps(before))
    data, page = extremes.show_sentences(places)
    kept = json.loads(data.read_text())["methods"]
    assert set(kept) == {"laplace", "attn-dirichlet", "swag"}
    assert kept["laplace"]["highest_entropy"] == ends("pos", 2.0)["highest_entropy"][:4], "the finished run counts"
    text = page.read_text()
    assert "## laplace (the thesis: tables 3.3 and 3.4)" in text
    assert "## swag\n" in text
    assert "| `wow   wow` | 2.000 | `wow   wow` | 0.200 |" in text


def test_the_digits_of_the_thesiss_methods_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extremes, "digits_of_the_test", lambda: torch.rand(10, 1, 28, 28))
    data, *drawn = extremes.show_digits(Written(tmp_path / "runs", tmp_path / "results", tmp_path / "docs"))
    kept = json.loads(data.read_text())["methods"]
    assert set(kept) == {"concrete-dropout", "attn-dirichlet", "attn-dirichlet-dd"}
    assert [path.name for path in drawn] == ["highest_entropy.png", "lowest_entropy.png"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in drawn)
