"""What each method is surest and least sure of: the thesis's tables 3.3, 3.4, 3.13, 3.14 (sentences), figures 3.2, 3.12, 3.13 (digits)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from torch import Tensor

from bayesattn.experiments.analysis.paper_figures.base import Places, add
from bayesattn.experiments.report.plots import save
from bayesattn.experiments.runs import RunConfig, RunFolder
from bayesattn.experiments.tables import TABLES
from bayesattn.support import json_text
from bayesattn.support.files import write_atomically

matplotlib.use("Agg")

from matplotlib import pyplot

PRINTED = {
    ("pos", "laplace"): "tables 3.3 and 3.4",
    ("pos", "attn-dirichlet"): "tables 3.13 and 3.14",
    ("mnist", "concrete-dropout"): "figure 3.2",
    ("mnist", "attn-dirichlet-dd"): "figure 3.12",
    ("mnist", "attn-dirichlet"): "figure 3.13",
}
"""What the thesis shows; runs of these are made where they are missing."""
TABLES_OF = {"pos": ("thesis-3.2", "thesis-3.12"), "mnist": ("thesis-3.5", "thesis-3.15")}
BUDGET = "small"
SENTENCES, DIGITS = "thesis-sentences", "thesis-digits"
"""The two figures."""
ENDS = ("highest_entropy", "lowest_entropy")
SHOWN = 4
"""Examples of each end, as in the thesis."""


def show_sentences(places: Places) -> list[Path]:
    """The sentences as a page."""
    found = _found("pos", SENTENCES, places)
    page = places.images / "pos" / "surest-sentences.md"
    write_atomically(page, as_page(found))
    return [places.keep(SENTENCES, {"seed": 0, "budget": BUDGET, "methods": found}), page]


def show_digits(places: Places) -> list[Path]:
    """The digits, a picture for each end."""
    found = _found("mnist", DIGITS, places)
    digits = digits_of_the_test()
    drawn = [_draw_digits(end, found, digits, places.images / "mnist" / f"{end}.png") for end in ENDS]
    return [places.keep(DIGITS, {"seed": 0, "budget": BUDGET, "methods": found}), *drawn]


def _found(task: str, name: str, places: Places) -> dict[str, Any]:
    """Those of the thesis's methods, and of every other method of its tables whose run of seed 0 has finished or was kept before."""
    configs = {config.method: config for config in _configs(task)}
    places.results_of([configs[method] for of_task, method in PRINTED if of_task == task])
    kept = places.results / f"{name}.json"
    found: dict[str, Any] = dict(json_text.read(kept)["methods"]) if kept.exists() else {}
    for method, config in configs.items():
        result = RunFolder.of(places.runs, config).result()
        if result is not None and set(ENDS) <= set(result["details"]):  # older runs lack them
            found[method] = {end: result["details"][end][:SHOWN] for end in ENDS} | {"commit": result["commit"]}
    return found


def as_page(found: dict[str, Any]) -> str:
    """The document of the sentences."""
    lines = [
        "# The sentences that each method is surest and least sure of",
        "",
        f"Made by `bayesattn figure {SENTENCES}`, which keeps `results/{SENTENCES}.json`: do not edit. Test sentences of",
        "UD English EWT, seed 0 at the small budget of the tables. The entropy is the mean over the words, in nats;",
        "sentences as the model sees them.",
        "",
    ]
    for method, ends in found.items():
        printed = PRINTED.get(("pos", method))
        lines += [f"## {method}" + (f" (the thesis: {printed})" if printed else ""), ""]
        lines += ["| least sure | entropy | surest | entropy |", "| --- | ---: | --- | ---: |"]
        for high, low in zip(ends[ENDS[0]], ends[ENDS[1]], strict=True):
            cells = [cell for each in (high, low) for cell in (_cell(each["tokens"]), f"{each['entropy']:.3f}")]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A sentence within a table: in backticks, without what would end the cell."""
    return f"`{text.replace('`', ' ').replace('|', ' ')}`"


def _configs(task: str) -> list[RunConfig]:
    return [
        config
        for table in TABLES_OF[task]
        for config in TABLES[table].configs(BUDGET, seeds=1, tasks=[task], methods=_plain_rows(table))
    ]


def _plain_rows(table: str) -> list[str]:
    """Those that are a method with its own options, not a variant of it."""
    return [row for row in TABLES[table].methods if row not in TABLES[table].variants]


def digits_of_the_test() -> Tensor:
    """The images that the runs were tested on."""
    return _configs("mnist")[0].make_task().load().test[0]


def _draw_digits(end: str, methods: dict[str, Any], images: Tensor, path: Path) -> Path:
    figure, panels = pyplot.subplots(
        len(methods), SHOWN, figsize=(1.5 * SHOWN, 1.6 * len(methods)), squeeze=False, layout="constrained"
    )
    for row, (method, ends) in zip(panels, methods.items(), strict=True):
        for axes, each in zip(row, ends[end], strict=True):
            axes.imshow(images[each["place"]].squeeze().numpy(), cmap="Greys")
            axes.set_title(f"{each['entropy']:.2g}, said {each['said']}, is {each['label']}", fontsize=6)
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(method, fontsize=6)
    return save(figure, path)


add(SENTENCES, "Tables 3.3, 3.4, 3.13, 3.14: the surest and least sure sentences of each method", show_sentences)
add(DIGITS, "Figures 3.2, 3.12, 3.13: the surest and least sure digits of each method", show_digits)
