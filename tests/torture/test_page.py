"""docs/reliability.md shows the figures of results/reliability.json."""

from __future__ import annotations

import json

from torture.reliability_page import PAGE, RESULTS, figures


def test_the_page_shows_the_kept_figures() -> None:
    results = json.loads(RESULTS.read_text())
    assert figures(results) in PAGE.read_text()
    assert set(results) == {
        *("attention", "derivatives", "models", "threads", "tasks", "files", "cache", "kills", "launches", "pairs"),
        *("disk", "steps", "predictions"),
    }
    for part in results.values():
        assert part["wrong"] == {}
        assert "dirty" not in part["commit"]
