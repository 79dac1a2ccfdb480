"""Where data files are, and whether they are what they should be.

A file is looked for in $BAYESATTN_DATA, or without that in the user's cache ($BAYESATTN_CACHE, else ~/.cache/bayesattn), and nowhere
else; a file that is not there is downloaded into the cache. Files may be gzipped or not: the checksum is that of the unpacked bytes.
Nothing half-loaded: a file is read whole, checked, and only then parsed. Until it is checked nobody knows what it is: a download comes
by https, and neither it nor what is unpacked may be larger than `MOST_BYTES`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.support.files import user_cache, write_atomically

MOST_BYTES = 1 << 30
"""No file of ours is larger."""


class DataError(Exception):
    """A data file is missing or damaged. The message says which, what is wrong and where to get it."""


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: its path below the data folder (without .gz), the SHA-256 of its unpacked bytes, and its source."""

    path: str
    sha256: str | None
    """None: not known, because a person makes the file."""
    source: str
    """Where a person gets it."""
    url: str | None = None
    """Where a program gets it; None: only by hand."""

    def remedy(self) -> str:
        """What to do about a missing or damaged file."""
        place = f"Put it at {self.path} or {self.path}.gz in the folder that BAYESATTN_DATA names."
        return f"Get it from {self.source}. {place}"


def data_folder() -> Path:
    """The folder in which data files are looked for: $BAYESATTN_DATA, or the user's cache."""
    named = os.environ.get("BAYESATTN_DATA")
    return Path(named) if named else user_cache() / "data"


def locate(file: DataFile) -> Path | None:
    """The path of the file, packed or not; None if it is not in the data folder."""
    paths = (data_folder() / file.path, data_folder() / f"{file.path}.gz")
    return next((path for path in paths if path.is_file()), None)


def read(file: DataFile) -> tuple[bytes, Path]:
    """The unpacked bytes of the file, checked, and its path."""
    path = locate(file) or _download(file)
    return _checked(file, path), path


def read_text(file: DataFile) -> tuple[str, Path]:
    """The text of the file, checked, and its path. A mark at its start that says UTF-8 is no part of it."""
    content, path = read(file)
    try:
        return content.decode("utf-8-sig"), path
    except UnicodeDecodeError as problem:
        raise DataError(f"{path} is not UTF-8 text ({problem}). {file.remedy()}") from None


def _checked(file: DataFile, path: Path) -> bytes:
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(content)) as packed:
                content = _bounded(packed, str(path), file)
        except (EOFError, OSError, zlib.error) as problem:
            raise DataError(
                f"{path} is damaged: it does not unpack ({problem}); it is probably truncated. {file.remedy()}"
            ) from None
    found = hashlib.sha256(content).hexdigest()
    if file.sha256 not in (None, found) and os.environ.get("BAYESATTN_DATA_CHECK") != "off":
        raise DataError(
            f"{path} is not the expected file: the SHA-256 of its unpacked bytes is {found}, not {file.sha256}. {file.remedy()} "
            "To use it all the same, set BAYESATTN_DATA_CHECK=off."
        )
    return content


def _bounded(stream: Any, name: str, file: DataFile) -> bytes:
    content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise DataError(f"{name} is not the expected file: it has more than {MOST_BYTES:,} bytes. {file.remedy()}")
    return content


class _Secure(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https alone."""

    @staticmethod
    def check(url: str) -> None:
        if not url.startswith("https://"):
            raise ValueError(f"{url} is not https")

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        self.check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(file: DataFile) -> Path:
    missing = f"{file.path} was not found in {data_folder()}"
    if file.url is None:
        raise DataError(f"{missing}. {file.remedy()}")
    target = user_cache() / "data" / file.path
    try:
        _Secure.check(file.url)
        with urllib.request.build_opener(_Secure).open(file.url, timeout=30) as response:
            content = _bounded(response, file.url, file)
    except (OSError, ValueError) as problem:  # URLError is an OSError
        raise DataError(f"{missing}, and downloading {file.url} failed ({problem}). {file.remedy()}") from None
    temporary = target.with_name(target.name + ".download")
    write_atomically(temporary, content)
    try:
        write_atomically(target, _checked(file, temporary))
    finally:
        temporary.unlink()
    return target
