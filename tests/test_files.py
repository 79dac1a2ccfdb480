"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bayesattn.files import write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, "old")

    def fail(handle: int, mode: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fdopen", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in path.parent.iterdir()] == ["file"]
