"""Figures 4 to 6 of the NVAE paper, with our runs: their data as JSON, and drawn from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib import pyplot

from bayesattn.experiments.report.plots import save
from bayesattn.experiments.runs import RunFolder
from bayesattn.experiments.tables import Table
from bayesattn.experiments.tasks.fluency import perplexity
from bayesattn.support.files import write_atomically

BIN = 5
"""Lengths that share a point of figure 4."""
FLUENCY = "smollm2_perplexity"


def collect(table: Table, budget: str, folder: Path, results: Path) -> Path:
    """The figures' data of the runs of `table` that have finished in `folder`, and else of what was kept before."""
    path = Path(results) / f"{table.name}-{budget}_figures.json"
    kept: dict[str, Any] = json.loads(path.read_text())["rows"] if path.exists() else {}
    rows = {}
    for row in table.methods:
        result = _result(table, budget, row, folder)
        if result is not None:
            rows[row] = _data(result) | {"variant": table.variant(row).options, "method": table.variant(row).method}
            _keep_fluency(rows[row], kept.get(row))
        elif row in kept:
            rows[row] = kept[row]
    if not rows:
        raise FileNotFoundError(
            f"There is no finished run of table {table.name!r} at budget {budget!r} in {folder}, and nothing in {path}: "
            f"make them with `bayesattn table {table.name} --budget {budget}`."
        )
    write_atomically(path, json.dumps({"table": table.name, "budget": budget, "rows": rows}, indent=1) + "\n")
    return path


def measure_fluency(path: Path, table: Table, folder: Path) -> Iterator[tuple[int, int]]:
    """Add SmolLM2's perplexity of interpolated texts where it is missing; yields how many of how many are there.

    Each is kept as soon as it is measured: stopped, it goes on where it was.
    """
    collected = json.loads(path.read_text())
    places = [(row, at) for row, data in collected["rows"].items() for at in data["interpolation"]]
    for done, (row, at) in enumerate(places, 1):
        if FLUENCY not in at:
            result = _result(table, collected["budget"], row, folder)
            if result is None:
                raise FileNotFoundError(
                    f"The texts of {row!r} are not in {folder}: its run must be there to measure how fluent they are."
                )
            at[FLUENCY] = perplexity(_texts(result, at["tau"]))
            write_atomically(path, json.dumps(collected, indent=1) + "\n")
        yield done, len(places)


def draw(path: Path, folder: Path) -> list[Path]:
    """Draw the figures of collected data."""
    rows = json.loads(Path(path).read_text())["rows"]
    return [
        kept_by_length(rows, Path(folder) / "nvae-figure-4.png"),
        trade_off(rows, Path(folder) / "nvae-figure-5.png"),
        interpolations(rows, Path(folder) / "nvae-figure-6.png"),
    ]


def kept_by_length(rows: dict[str, Any], path: Path) -> Path:
    """Figure 4: vectors kept against tokens of a text."""
    figure, axes = pyplot.subplots(figsize=(5.5, 4.2), layout="constrained")
    for row, data in rows.items():
        if data["method"] in ("nvae", "vt"):
            axes.plot(*zip(*_binned(data["kept_by_length"]), strict=True), marker="o", markersize=3, label=row)
    axes.set(xlabel="tokens of the text, its end among them", ylabel="vectors kept", title="Vectors kept by length")
    axes.legend(frameon=False)
    return save(figure, path)


def trade_off(rows: dict[str, Any], path: Path) -> Path:
    """Figure 5: BLEU against the share of vectors kept."""
    figure, axes = pyplot.subplots(figsize=(5.5, 4.2), layout="constrained")
    for method in dict.fromkeys(data["method"] for data in rows.values()):
        points = sorted((data["retained"], data["bleu"], row) for row, data in rows.items() if data["method"] == method)
        line = "-" if method in ("nvae", "vts") else "none"
        axes.plot([p[0] for p in points], [p[1] for p in points], linestyle=line, marker="o", label=method)
        for share, bleu, row in points:
            axes.annotate(row, (share, bleu), textcoords="offset points", xytext=(4, -9), fontsize="x-small")
    axes.set(xlabel="share of vectors kept, ν", ylabel="BLEU of texts written again", title="BLEU against ν")
    axes.legend(frameon=False)
    return save(figure, path)


def interpolations(rows: dict[str, Any], path: Path) -> Path:
    """Figure 6: BLEU to either end, and perplexity, on the way from one text to another."""
    external = all(FLUENCY in at for data in rows.values() for at in data["interpolation"])
    measure, name = (FLUENCY, "SmolLM2-135M") if external else ("perplexity", "a trigram model")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for row, data in rows.items():
        tau = [at["tau"] for at in data["interpolation"]]
        (line,) = left.plot(tau, [at["bleu_to_first"] for at in data["interpolation"]], marker="o", markersize=3)
        left.plot(tau, [at["bleu_to_second"] for at in data["interpolation"]], linestyle=":", color=line.get_color())
        right.plot(tau, [at[measure] for at in data["interpolation"]], marker="o", markersize=3, label=row)
    left.set(
        xlabel="share of the second text, τ", ylabel="sentence BLEU", title="To the first text (dotted: the second)"
    )
    right.set(xlabel="share of the second text, τ", ylabel="perplexity", title=f"Perplexity to {name}", yscale="log")
    right.legend(frameon=False, fontsize="small")
    return save(figure, path)


def _result(table: Table, budget: str, row: str, folder: Path) -> dict[str, Any] | None:
    (config,) = table.configs(budget, seeds=1, methods=[row])
    return RunFolder.of(folder, config).result()


def _keep_fluency(data: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Take over what was measured of the same texts: those of which everything else is the same."""
    for at, known in zip(data["interpolation"], before["interpolation"] if before else (), strict=False):
        if FLUENCY in known and known == at | {FLUENCY: known[FLUENCY]}:
            at[FLUENCY] = known[FLUENCY]


def _data(result: dict[str, Any]) -> dict[str, Any]:
    """What the figures need of one run, without the texts."""
    metrics, details = result["metrics"], result["details"]
    return {
        "bleu": metrics["bleu"],
        "retained": metrics["retained"],
        "kept_by_length": details["kept_by_length"],
        "interpolation": [
            {name: value for name, value in at.items() if name != "texts"} for at in details["interpolation"]
        ],
        "commit": result["commit"],
    }


def _texts(result: dict[str, Any], tau: float) -> list[str]:
    return next(at["texts"] for at in result["details"]["interpolation"] if at["tau"] == tau)


def _binned(points: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Mean length and mean number of vectors kept of texts of similar lengths."""
    bins: dict[int, list[dict[str, Any]]] = {}
    for point in points:
        bins.setdefault(point["length"] // BIN, []).append(point)
    means = []
    for members in bins.values():
        texts = sum(point["texts"] for point in members)
        means.append(
            tuple(sum(point[name] * point["texts"] for point in members) / texts for name in ("length", "kept"))
        )
    return sorted(means)
