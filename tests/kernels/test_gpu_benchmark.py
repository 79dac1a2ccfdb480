"""`benchmarks/gpu.py`, which no GPU is here to run: dry, and what it says where something is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import bayesattn as ba


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import gpu  # pyright: ignore[reportMissingImports]

    yield gpu
    del sys.modules["gpu"]


def dry(script: Any, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    file = folder / "gpu.json"
    status = script.main(["--dry-run", "--output", str(file), *arguments])
    return status, json.loads(file.read_text())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_measures_nothing(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--output", str(tmp_path / "gpu.json")]) == 1
    assert "There is no GPU here" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_dry_run_goes_through_every_part(script: Any, tmp_path: Path) -> None:
    status, report = dry(script, tmp_path)
    assert status == 0
    assert report["dry_run"] is True
    assert report["backend"] == "chunked"
    assert {part: len(report[part]) for part in script.PARTS} == {
        "correctness": 15,
        "attention": 7,
        "decoding": 4,
        "predict": 4,
    }
    assert all(0 < value < 1e-4 for case in report["correctness"].values() for value in case["differences"].values())
    assert all(case["step"]["ratio"] > 0 for case in report["attention"].values())
    assert report["left_out"] == []


def test_a_kernel_that_is_wrong_is_found_and_one_that_fails_stops_nothing(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = script.everything

    def wrong(posterior: ba.Posterior, tensors: tuple[torch.Tensor, ...], backend: str, **masks: Any) -> Any:
        if isinstance(posterior, ba.Gaussian):
            raise RuntimeError("out of something")
        found = right(posterior, tensors, backend, **masks)
        if isinstance(posterior, ba.Weibull) and backend != "reference" and "is_causal" in masks:
            found["key"] = found["key"] * 1.01
        return found

    monkeypatch.setattr(script, "everything", wrong)
    status, report = dry(script, tmp_path, "--parts", "correctness")
    assert status == 1
    found = report["correctness"]
    assert {name for name, case in found.items() if case.get("agrees") is False} == {
        "weibull, causal",
        "weibull-contextual, causal",
    }
    assert found["gaussian, lengths"] == {"error": "RuntimeError: out of something"}
    assert found["dirichlet, dropout"]["agrees"] is True
    assert "FAILED correctness: weibull, causal" in capsys.readouterr().out


def test_another_backend_is_not_measured_under_the_name_of_this_one(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        script, "POSTERIORS", {"weibull": lambda: ba.Weibull(), "dirichlet": lambda: ba.Dirichlet(approximate=True)}
    )
    status, report = dry(script, tmp_path, "--parts", "correctness", "decoding")
    assert status == 1
    assert "error" not in report["decoding"]["weibull, 1 x 300"]
    assert "chunked would not be measured: reference" in report["decoding"]["dirichlet, 1 x 300"]["error"]


def test_after_its_minutes_it_begins_nothing_and_lists_what_is_missing(script: Any, tmp_path: Path) -> None:
    status, report = dry(script, tmp_path, "--minutes", "0", "--parts", "decoding")
    assert status == 0
    assert report["decoding"] == {}
    assert len(report["left_out"]) == 4
