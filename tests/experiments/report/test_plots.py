"""Plots: the lines drawn are the means they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bayesattn.experiments.report import plots


def test_lines_are_means_with_their_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[list[float], list[float]]] = []
    axes = plots.pyplot.Axes
    monkeypatch.setattr(axes, "fill_between", lambda self, x, low, high, **style: drawn.append((low, high)))
    curves = {"one": torch.tensor([[1.0, 0.5]]), "two": torch.tensor([[0.8, 0.2], [0.6, 0.4]])}
    path = plots.against_level(curves, [0.0, 2.0], ("level", "accuracy"), "title", tmp_path / "plot.png")
    assert path.stat().st_size > 1000
    (low, high), (other_low, other_high) = drawn
    assert low == high == [1.0, 0.5]
    assert other_low == pytest.approx([0.6, 0.2])
    assert other_high == pytest.approx([0.8, 0.4])
