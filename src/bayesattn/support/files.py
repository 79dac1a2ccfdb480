"""Files that are there whole or not at all, and the user's cache, where some of them are kept."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def user_cache() -> Path:
    """BAYESATTN_CACHE, else bayesattn in XDG_CACHE_HOME or ~/.cache."""
    if named := os.environ.get("BAYESATTN_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayesattn"


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """An empty file beside `path`, which takes its place if the block ends well, and is removed if not.

    A reader, a `kill -9` or a power cut therefore never meets half of it: it is on the disk before it has its name."""
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        os.close(handle)
        unfinished = Path(name)
        try:
            yield unfinished
            os.chmod(unfinished, mode)  # mkstemp's 0600 would keep results from other users
            _flush(unfinished)
            os.replace(unfinished, path)
            _flush(path.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def append(path: Path, line: str) -> None:
    """Add a line to a file, or, on a full disk, nothing."""
    with _naming(path):
        size = path.stat().st_size if path.exists() else 0
        try:
            with path.open("a") as file:
                file.write(line + "\n")
        except OSError:
            os.truncate(path, size)
            raise


def remove_unfinished(folder: Path, older_than: float = 0.0) -> None:
    """Remove what writers that were killed have left in a folder.

    To be called while nobody writes there, or with a number of seconds within which every writer is done."""
    for path in folder.glob(".?*.?*-????????"):
        try:
            if path.is_file() and time.time() - path.stat().st_mtime >= older_than:
                path.unlink()
        except FileNotFoundError:  # its writer was done, or another process removed it
            pass


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A full disk does not say of itself which file was to be written; a file's temporary name says nothing to anybody."""
    try:
        yield
    except OSError as problem:
        unnamed = problem.filename is None or Path(str(problem.filename)).name.startswith(f".{path.name}-")
        if problem.errno is not None and unnamed:
            problem.filename = str(path)
        raise
