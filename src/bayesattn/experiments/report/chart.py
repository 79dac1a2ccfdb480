"""Small charts as SVG text. They carry classes and no colours: the page's style sheet has those, for light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Dot:
    """One row of a dot chart: ours with its standard error, and what the paper printed."""

    name: str
    mean: float | None
    error: float | None = None
    published: float | None = None


@dataclass(frozen=True)
class _Scale:
    """A linear map from figures to places on the page, with round ticks."""

    low: float
    high: float
    start: int
    end: int

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 2)

    def ticks(self, about: int = 5) -> list[float]:
        raw = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [round(index * step, 12) for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _around(values: Sequence[float], margin: float = 0.06) -> tuple[float, float]:
    """A range with some room at both ends; never empty."""
    low, high = min(values), max(values)
    room = margin * (high - low) if low < high else abs(high) * margin or 1.0
    return low - room, high + room


def dots(rows: Sequence[Dot], label: str) -> Markup:
    """One line for each row: a dot with its standard error, and a diamond where the paper has a figure."""
    values = [
        value
        for row in rows
        for value in (
            row.published,
            *((row.mean - (row.error or 0), row.mean + (row.error or 0)) if row.mean is not None else ()),
        )
        if value is not None
    ]
    if not values:
        return Markup("")
    row_height, left, width = 20, 190, 560
    bottom = row_height * len(rows) + 8
    across = _Scale(*_around(values), left, width - 14)
    parts = [_vertical_grid(across, 0, bottom)]
    for index, row in enumerate(rows):
        middle = row_height * index + row_height // 2 + 2
        parts.append(Markup('<text class="name" x="{}" y="{}">{}</text>').format(left - 10, middle + 4, row.name))
        if row.published is not None:
            place = across(row.published)
            parts.append(
                Markup('<path class="paper" d="M{} {}l5 5l-5 5l-5 -5z"><title>paper: {}</title></path>').format(
                    place, middle - 5, f"{row.published:g}"
                )
            )
        if row.mean is not None:
            if row.error is not None:
                parts.append(
                    Markup('<path class="error" d="M{} {}H{}"/>').format(
                        across(row.mean - row.error), middle, across(row.mean + row.error)
                    )
                )
            parts.append(
                Markup('<circle class="ours" cx="{}" cy="{}" r="4"><title>ours: {}</title></circle>').format(
                    across(row.mean), middle, f"{row.mean:g}"
                )
            )
    return _figure(parts, width, bottom + 22, label)


def lines(
    series: Mapping[str, Points],
    label: str,
    across: str,
    up: str,
    *,
    diagonal: bool = False,
    unit: bool = False,
    counts: Mapping[str, Sequence[int]] | None = None,
    colours: Sequence[str] = (),
) -> Markup:
    """A line for each series. `unit`: both axes from 0 to 1; `diagonal`: with the line of equality.

    Args:
        counts: how many examples each point stands for: the point is drawn, its area as large as that.
        colours: all names that the page shows, so that each has one colour throughout; default: those of the series.
    """
    number_of = {name: number for number, name in enumerate(colours or series)}
    points = [point for each in series.values() for point in each if all(map(math.isfinite, point))]
    if not points:
        return Markup("")
    width, height, left, bottom = 560, 300, 62, 256
    low_x, high_x = (0.0, 1.0) if unit else _around([x for x, _ in points], 0.0)
    low_y, high_y = (0.0, 1.0) if unit else _around([y for _, y in points])
    horizontal, vertical = _Scale(low_x, high_x, left, width - 14), _Scale(low_y, high_y, bottom, 10)
    parts = [_vertical_grid(horizontal, 10, bottom), _horizontal_grid(vertical, left, width - 14)]
    if diagonal:
        parts.append(Markup('<path class="equal" d="M{} {}L{} {}"/>').format(left, bottom, width - 14, 10))
    most = max((count for each in (counts or {}).values() for count in each), default=1)
    for name, each in series.items():
        colour = number_of[name] % 8
        shown = [(horizontal(x), vertical(y)) for x, y in each if math.isfinite(x) and math.isfinite(y)]
        path = "M" + "L".join(f"{x} {y}" for x, y in shown)
        if shown:
            parts.append(Markup('<path class="line s{}" d="{}"><title>{}</title></path>').format(colour, path, name))
        if counts is not None:
            parts += [
                Markup('<circle class="dot s{}" cx="{}" cy="{}" r="{}"><title>{}: {} examples</title></circle>').format(
                    colour, *place, round(1.5 + 8.5 * math.sqrt(count / most), 2), name, count
                )
                for place, count in zip(shown, counts[name], strict=True)
            ]
    parts.append(Markup('<text class="axis" x="{}" y="{}">{}</text>').format((left + width) / 2, height - 6, across))
    parts.append(
        Markup('<text class="axis" x="{}" y="{}" transform="rotate(-90 {} {})">{}</text>').format(
            14, bottom / 2, 14, bottom / 2, up
        )
    )
    return _figure(parts, width, height, label) + _legend([(f"key s{number_of[name] % 8}", name) for name in series])


def densities(
    groups: Mapping[str, Sequence[float]], label: str, across: str, high: float, colour: int = 0, bins: int = 25
) -> Markup:
    """Curves of the densities of several groups from 0 to `high`: one colour, each group its own kind of line, the first filled."""
    width, height, left, bottom = 560, 190, 20, 150
    found = {name: _density(values, high, bins) for name, values in groups.items()}
    top = max((max(each) for each in found.values()), default=0.0) or 1.0
    horizontal, vertical = _Scale(0.0, high, left, width - 14), _Scale(0.0, top * 1.05, bottom, 8)
    parts = [_vertical_grid(horizontal, 8, bottom)]
    for number, (name, density) in enumerate(found.items()):
        middles = "L".join(
            f"{horizontal((index + 0.5) * high / bins)} {vertical(value)}" for index, value in enumerate(density)
        )
        if number == 0:
            ends = f"M{horizontal(0.5 * high / bins)} {bottom}L{middles}L{horizontal((bins - 0.5) * high / bins)} {bottom}Z"
            parts.append(Markup('<path class="area s{}" d="{}"/>').format(colour % 8, ends))
        parts.append(
            Markup('<path class="line s{} d{}" d="M{}"><title>{}</title></path>').format(
                colour % 8, number % 5, middles, name
            )
        )
    parts.append(Markup('<text class="axis" x="{}" y="{}">{}</text>').format((left + width) / 2, height - 6, across))
    keys = [(f"stroke s{colour % 8} d{number % 5}", name) for number, name in enumerate(groups)]
    return _figure(parts, width, height, label) + _legend(keys)


def _legend(items: Sequence[tuple[str, str]]) -> Markup:
    """Names, each after its key: a square of its colour, or a piece of its line."""
    square, piece = (
        Markup('<span class="{}"></span>'),
        Markup('<svg class="{}" viewBox="0 0 28 6"><path d="M0 3H28"/></svg>'),
    )
    return Markup('<ul class="legend">{}</ul>').format(
        Markup("").join(
            Markup("<li>{}{}</li>").format((piece if key.startswith("stroke") else square).format(key), name)
            for key, name in items
        )
    )


def _density(values: Sequence[float], high: float, bins: int) -> list[float]:
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, max(0, int(value / high * bins)))] += 1
    return [count * bins / high / max(1, len(values)) for count in counts]


def _vertical_grid(scale: _Scale, top: int, bottom: int) -> Markup:
    return Markup("").join(
        Markup('<path class="grid" d="M{0} {1}V{2}"/><text class="tick" x="{0}" y="{3}">{4}</text>').format(
            scale(tick), top, bottom, bottom + 14, _number(tick)
        )
        for tick in scale.ticks()
    )


def _horizontal_grid(scale: _Scale, left: int, right: int) -> Markup:
    return Markup("").join(
        Markup('<path class="grid" d="M{0} {1}H{2}"/><text class="tick side" x="{3}" y="{4}">{5}</text>').format(
            left, scale(tick), right, left - 6, scale(tick) + 4, _number(tick)
        )
        for tick in scale.ticks()
    )


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _figure(parts: Sequence[Markup | str], width: int, height: int, label: str) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, escape(label), Markup("").join(parts)
    )
