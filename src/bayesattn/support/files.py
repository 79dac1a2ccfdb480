"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file by renaming a finished temporary one, so that a reader, or a `kill -9`, never meets half of it."""
    data = content.encode() if isinstance(content, str) else content
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o644)  # mkstemp's 0600 would keep results from other users
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


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


def remove_unfinished(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder; to be called while nobody writes there."""
    for path in folder.glob(".?*.?*-????????"):
        path.unlink()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A full disk does not say of itself which file was to be written."""
    try:
        yield
    except OSError as problem:
        if problem.errno is not None:
            problem.filename = str(path)
        raise
