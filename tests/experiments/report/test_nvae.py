"""The figures of NVAE: collected from runs, kept, drawn again without them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bayesattn.experiments.report import nvae
from bayesattn.experiments.report.nvae import _binned, collect, draw, measure_fluency
from bayesattn.experiments.runs import run
from bayesattn.experiments.tables import TABLES, Budget, Table, Variant

SMALL = {"hidden": 8, "feedforward": 8, "vocabulary": 120, "test_sentences": 20, "pairs": 3, "generated": 5}


def small_table() -> Table:
    dataset = replace(TABLES["nvae"].datasets[0], task="nvae-toy")
    return replace(
        TABLES["nvae"],
        datasets=(dataset,),
        methods=("t", "vts-0.5", "nvae-0.3"),
        budgets={
            "small": {"nvae-toy": Budget(seeds=1, training={"epochs": 1, "train_share": 0.1}, task_options=SMALL)}
        },
        method_options={},
        variants={"vts-0.5": Variant("vts", {"dropped": 0.5}), "nvae-0.3": Variant("nvae", {"delta": 0.3})},
    )


def _stopped_and_gone_on_with(table: Table, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fluency is measured once for each text, kept at once, and survives a new collection of the same runs."""
    asked: list[list[str]] = []
    monkeypatch.setattr(nvae, "perplexity", lambda texts: asked.append(texts) or float(len(asked)))
    measuring = measure_fluency(path, table, tmp_path / "runs")
    _, total = next(measuring)
    next(measuring)
    measuring.close()
    collect(table, "small", tmp_path / "runs", path.parent)
    assert list(measure_fluency(path, table, tmp_path / "runs"))[-1] == (total, total)
    places = [at for data in json.loads(path.read_text())["rows"].values() for at in data["interpolation"]]
    assert [at["smollm2_perplexity"] for at in places] == [float(count) for count in range(1, total + 1)]
    assert len(asked) == total
    path.write_text(path.read_text().replace("smollm2_perplexity", "other"))
    with pytest.raises(FileNotFoundError, match="texts of 't' are not in"):
        list(measure_fluency(path, table, tmp_path / "elsewhere"))


@pytest.mark.slow
def test_from_runs_to_drawings_and_again_from_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table()
    with pytest.raises(FileNotFoundError, match="make them with `bayesattn table nvae --budget small`"):
        collect(table, "small", tmp_path / "runs", tmp_path)
    results = {config.method: run(config, tmp_path / "runs") for config in table.configs("small")}
    path = collect(table, "small", tmp_path / "runs", tmp_path / "results")
    rows = json.loads(path.read_text())["rows"]
    assert set(rows) == {"t", "vts-0.5", "nvae-0.3"}
    assert rows["vts-0.5"]["variant"] == {"dropped": 0.5}
    assert rows["nvae-0.3"]["bleu"] == results["nvae"]["metrics"]["bleu"]
    assert "texts" not in rows["t"]["interpolation"][0]
    before = path.read_text()
    assert collect(table, "small", tmp_path / "elsewhere", tmp_path / "results").read_text() == before
    _stopped_and_gone_on_with(table, path, tmp_path, monkeypatch)
    drawn = draw(path, tmp_path / "images")
    assert [image.name for image in drawn] == ["nvae-figure-4.png", "nvae-figure-5.png", "nvae-figure-6.png"]
    assert all(image.read_bytes()[:4] == b"\x89PNG" for image in drawn)


def test_lengths_are_binned_by_texts() -> None:
    points = [{"length": 5, "texts": 3, "kept": 2.0}, {"length": 9, "texts": 1, "kept": 6.0}]
    points.append({"length": 10, "texts": 2, "kept": 7.0})
    assert _binned(points) == [(6.0, 3.0), (10.0, 7.0)]
