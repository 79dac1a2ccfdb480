"""Charts: where figures land, and what is left out."""

from __future__ import annotations

import math
import re

import pytest

from bayesattn.experiments.report import chart


def circles(svg: str) -> list[float]:
    return [float(place) for place in re.findall(r'cx="([\d.]+)"', svg)]


def test_dots_lie_in_the_order_of_their_figures_at_equal_distances() -> None:
    svg = chart.dots([chart.Dot("a", 1.0), chart.Dot("b", 3.0), chart.Dot("c", 2.0, 0.5, 1.5)], "figures")
    a, b, c = circles(svg)
    assert b - c == pytest.approx(c - a, abs=0.05)
    left, right = map(float, re.search(r'class="error" d="M([\d.]+) [\d.]+H([\d.]+)"', svg).groups())
    assert (left + right) / 2 == pytest.approx(c, abs=0.05)
    assert right - left == pytest.approx(b - c, abs=0.05)
    assert svg.count('class="paper"') == 1


def test_figures_that_are_not_finite_are_left_out_of_a_line() -> None:
    svg = chart.lines({"loss": [(1.0, math.nan), (2.0, 1.0), (3.0, math.inf), (4.0, 2.0)]}, "loss", "epoch", "loss")
    assert re.search(r'class="line s0" d="M[\d.]+ [\d.]+L[\d.]+ [\d.]+"', svg)
    assert chart.lines({"loss": [(1.0, math.nan)]}, "loss", "epoch", "loss") == ""


def test_lines_fill_the_width_of_the_chart() -> None:
    drawn = chart.lines({"risk": [(0.0, 0.1), (0.5, 0.2), (1.0, 0.3)]}, "risk", "coverage", "error rate")
    (path,) = re.findall(r'class="line s0" d="M([^"]+)"', drawn)
    across = [float(point.split()[0]) for point in path.split("L")]
    assert across == [62.0, 304.0, 546.0]


def test_a_name_keeps_its_colour_where_others_are_left_out() -> None:
    drawn = chart.lines({"b": [(0.0, 1.0), (1.0, 2.0)]}, "KL", "epoch", "KL", colours=["a", "b"])
    assert 'class="line s1"' in drawn
    assert 'class="key s1"' in drawn
    assert "s0" not in drawn


def test_a_point_is_as_large_as_what_it_stands_for() -> None:
    drawn = chart.lines({"a": [(0.1, 0.1), (0.5, 0.5), (0.9, 0.9)]}, "", "", "", counts={"a": [0, 25, 100]})
    nothing, quarter, whole = (float(radius) - 1.5 for radius in re.findall(r' r="([\d.]+)"', drawn))
    assert nothing == 0.0
    assert whole**2 == pytest.approx(4 * quarter**2)
    assert "a: 25 examples" in drawn


def test_groups_share_a_colour_and_have_lines_of_their_own() -> None:
    drawn = chart.densities({"inside": [0.1, 0.2], "outside": [0.9, 0.8]}, "", "", 1.0, colour=3)
    assert re.findall(r'class="line s3 (d\d)"', drawn) == ["d0", "d1"]
    inside, outside = re.findall(r'class="line s3 d\d" d="M([^"]+)"', drawn)
    highest = [min(path.split("L"), key=lambda point: float(point.split()[1])).split()[0] for path in (inside, outside)]
    assert float(highest[0]) < float(highest[1]), "they peak where their values are"


def test_a_histogram_is_a_density() -> None:
    density = chart._density([0.1, 0.1, 0.9, 5.0], 1.0, 10)
    assert sum(density) / 10 == pytest.approx(1.0)
    assert density[9] == pytest.approx(5.0)  # what lies beyond the end is counted in the last bin


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-27.3, -25.1), (0.00012, 0.00031), (3.0, 4e6)])
def test_ticks_are_round_few_and_inside(low: float, high: float) -> None:
    ticks = chart._Scale(low, high, 0, 100).ticks()
    assert 3 <= len(ticks) <= 7
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
    step = ticks[1] - ticks[0]
    assert f"{step:.1e}"[0] in "125"


def test_names_are_escaped() -> None:
    assert "<i>" not in chart.dots([chart.Dot("<i>", 1.0)], "<i>")
