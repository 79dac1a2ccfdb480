"""Records of JSON files, with messages that say which file, which record and which field is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from bayesattn.experiments.data.files import DataError
from bayesattn.support import json_text

Kind = TypeVar("Kind")


def read_json(path: Path) -> Any:
    """What the file holds."""
    if not path.is_file():
        raise DataError(f"{path} was not found.")
    return parse_json(path.read_bytes(), path)


def parse_json(content: bytes, path: Path) -> Any:
    """What these bytes of the file `path` hold."""
    try:
        return json_text.parse(content, path)
    except ValueError as problem:
        raise DataError(str(problem)) from None


def records(content: Any, name: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records in the list `name`, each with its place in words."""
    if not isinstance(content, dict) or not isinstance(content.get(name), list):
        raise DataError(f"{path} must be a JSON object with a list {name!r}.")
    for number, record in enumerate(content[name]):
        place = f"{name}[{number}]"
        if not isinstance(record, dict):
            raise DataError(f"{path}, {place} must be an object, not {str(record)[:40]!r}.")
        yield place, record


def field(record: Any, name: str, kind: type[Kind], path: Path, place: str) -> Kind:
    """A field of a record, of the kind that it must have."""
    if not isinstance(record, dict) or name not in record:
        raise DataError(f"{path}, {place} has no {name!r}.")
    if not isinstance(record[name], kind) or isinstance(record[name], bool):  # Python's booleans are whole numbers, too
        raise DataError(f"{path}, {place}: {name!r} must be of type {kind.__name__}, not {str(record[name])[:40]!r}.")
    return record[name]
