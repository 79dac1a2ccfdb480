"""Tail indices of the studies that are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesattn.experiments.analysis.paper_figures.base import Places
from bayesattn.experiments.analysis.paper_figures.tails import draw_tails


def test_studies_that_are_there_are_drawn_and_others_named(tmp_path: Path) -> None:
    lines: list[str] = []
    places = Places(results=tmp_path / "results", images=tmp_path, say=lines.append)
    with pytest.raises(FileNotFoundError, match="make one with `bayesattn study TASK`"):
        draw_tails(places)
    lines.clear()
    (tmp_path / "pos").mkdir()
    layers = [{"name": "head.weight", "df": 60.0}, {"name": "positions", "df": 7.1}]
    (tmp_path / "pos/study.json").write_text(json.dumps({"task": "pos", "layers": layers}))
    data, drawn = draw_tails(places)
    assert json.loads(data.read_text())["df"] == {"pos": {"head.weight": 60.0, "positions": 7.1}}
    assert len(lines) == 6
    assert "bayesattn study toy-m2 --output" in lines[1]
    assert drawn.read_bytes()[:4] == b"\x89PNG"
