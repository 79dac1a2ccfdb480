"""Plots: the points drawn are the shares they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from bayesattn.report import plots


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures, kept when they are saved."""
    figures: list[Figure] = []
    monkeypatch.setattr(pyplot, "close", figures.append)
    return figures


def test_reliability_draws_accuracy_against_confidence(tmp_path: Path, drawn: list[Figure]) -> None:
    probabilities = torch.tensor([[0.95, 0.05], [0.95, 0.05], [0.65, 0.35], [0.35, 0.65]])
    labels = torch.tensor([0, 1, 0, 1])
    path = plots.reliability({"ours": probabilities}, labels, tmp_path / "a" / "reliability.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    line = drawn[0].axes[0].lines[1]
    assert line.get_xdata() == pytest.approx([0.65, 0.95])
    assert line.get_ydata() == pytest.approx([1.0, 0.5])


def test_entropy_histograms_hold_every_example(tmp_path: Path, drawn: list[Figure]) -> None:
    inside, outside = torch.full((30,), 0.1), torch.full((50,), 2.0)
    plots.entropy_in_and_out({"a": inside, "b": inside}, {"a": outside, "b": outside}, 10, tmp_path / "entropy.png")
    axes = drawn[0].axes[0]
    heights = [patch.get_height() * patch.get_width() for patch in axes.patches]  # pyright: ignore
    assert sum(heights) == pytest.approx(2.0), "two densities"
    assert len(drawn[0].axes) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["entropy.png"]


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
