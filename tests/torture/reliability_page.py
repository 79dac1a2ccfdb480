"""The figures of results/reliability.json on docs/reliability.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bayesattn.support.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: written by make torture -->", "<!-- end of figures -->"


def figures(results: dict[str, dict[str, Any]]) -> str:
    """The table of the page."""
    lines = [
        "| part | what | tried | wrong | first case (seed) | commit |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for name, part in results.items():
        tried = f"{part['tried']:,}" + ("" if part["tried"] == part["cases"] else f" of {part['cases']:,}")
        cells = (
            name,
            part["what"],
            tried,
            len(part["wrong"]),
            part["first"],
            f"`{part['commit']}`",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    measured = [
        f"- {name}: " + ", ".join(f"{key} {value:,}" for key, value in part["measured"].items()) + "."
        for name, part in results.items()
        if part["measured"]
    ]
    machines = sorted({part["machine"] for part in results.values()})
    return "\n".join([*lines, "", *measured, "", f"Machine: {'; '.join(machines)}."])


def update_page() -> None:
    """Put the figures on the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    shown = figures(json.loads(RESULTS.read_text()))
    write_atomically(PAGE, f"{before}{BEGIN}\n{shown}\n{END}{after}")
