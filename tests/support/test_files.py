"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest

from bayesattn.support.files import append, remove_unfinished, replacing, write_atomically


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, "old")

    def fail(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
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


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a name must not stand for an empty file: what it names, and then the folder, are flushed."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    write_atomically(tmp_path / "file", "text")
    assert done == ["file", "rename", "folder"]


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="readme"), replacing(tmp_path / "file"):
        (tmp_path / "readme").read_text()
    assert not list(tmp_path.iterdir())


def test_what_is_being_written_now_is_left_alone(tmp_path: Path) -> None:
    with replacing(tmp_path / "library.so") as unfinished:
        remove_unfinished(tmp_path, older_than=60.0)
        assert unfinished.exists()
        os.utime(unfinished, (0, 0))
        remove_unfinished(tmp_path, older_than=60.0)
        assert not unfinished.exists()
        unfinished.touch()


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".result.json-abcd1234", ".lock", "result.json", "model-12345678", ".hidden"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {".lock", "result.json", "model-12345678", ".hidden"}
