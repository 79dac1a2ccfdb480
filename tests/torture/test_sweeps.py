"""Short forms of `make torture`: killed sweeps, sweeps in pairs, a full disk; in a process of their own, because they fork."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torture import sweep_cases
from torture.attention_cases import Wrong
from torture.small_table import TABLE


def torture(results: Path, *arguments: str) -> dict[str, dict]:
    command = [sys.executable, str(Path(__file__).parent), "--results", str(results), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(results.read_text())


@pytest.mark.slow
def test_sweeps_survive_and_a_stopped_torture_goes_on(tmp_path: Path) -> None:
    found = torture(tmp_path / "found.json", "--parts", "kills", "pairs", "disk", "--share", "0.04")
    assert {name: (part["tried"], part["wrong"]) for name, part in found.items()} == {
        "kills": (2, {}),
        "pairs": (1, {}),
        "disk": (1, {}),
    }
    for part in found.values():
        part["seconds"] = 1234.5
    found["pairs"]["tried"] = 0  # as if it had been stopped
    (tmp_path / "found.json").write_text(json.dumps(found))
    again = torture(tmp_path / "found.json", "--parts", "kills", "pairs", "--share", "0.04")
    assert again["kills"] == found["kills"], "what is done is not done again"
    assert again["pairs"]["tried"] == 1
    assert again["pairs"]["seconds"] > 1234.5, "what is left is done"


def test_half_a_sweep_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    """The torture can fail: a run that is missing, or a file too many, is noticed."""
    (tmp_path / "results").mkdir()
    names = [config.name for config in TABLE.configs()]
    for name in names:
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "results" / "torture.json").write_text(
        '{"table": "torture", "budget": "paper", "floors": {}, "runs": []}'
    )
    with pytest.raises(Wrong, match=f"0 runs in place of {len(names)}"):
        sweep_cases.left_behind(tmp_path)
