"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from bayesattn.support.files import append, remove_unfinished, write_atomically


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


def test_a_full_disk_is_named_and_a_line_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """The largest size that a file may have stands in for a full disk."""
    path = tmp_path / "metrics.jsonl"
    append(path, "first")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*metrics.jsonl'"):
            append(path, "a second line")
        with pytest.raises(OSError, match=r"File too large: '.*result.json'"):
            write_atomically(tmp_path / "result.json", "more than ten bytes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "first\n"
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".result.json-abcd1234", ".lock", "result.json", "model-12345678", ".hidden"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {".lock", "result.json", "model-12345678", ".hidden"}
