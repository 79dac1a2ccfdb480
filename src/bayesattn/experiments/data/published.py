"""Published files that a person has put somewhere: in a folder that is named, or in one of the data folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bayesattn.experiments.data.files import DataError, DataFile, locate


def published_files(data: str, names: Sequence[str], source: str) -> tuple[DataFile, ...]:
    """The files `names` in the folder `data`, which is a path, or the name of a folder below $BAYESATTN_DATA."""
    folder = str(Path(data).resolve()) if Path(data).is_dir() else data
    return tuple(DataFile(f"{folder}/{name}", None, source) for name in names)


def path_of(file: DataFile) -> Path:
    """Where the file is, unpacked."""
    path = locate(file)
    if path is None:
        raise DataError(f"{file.path} was not found. Get it from {file.source}, and name its folder with --data.")
    if path.suffix == ".gz":
        raise DataError(f"{path} is packed: unpack it.")
    return path
