"""Names on the command line and what they stand for: one registry each for tasks, methods and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

from bayesattn.support import checks

Thing = TypeVar("Thing")


def added_later(default: Any) -> Any:
    """The field of an option that older runs did not have. At its default, which must do what was done without it, it is no part of
    a run's identity: runs that were made before it keep their names.
    """
    return field(default=default, metadata={"added_later": True})


def identity(options: Any) -> dict[str, Any]:
    """The options as plain values, without those that were added later and have their default."""
    if not is_dataclass(options):
        raise TypeError(f"options must be a dataclass, got {type(options).__name__}.")
    return {
        each.name: getattr(options, each.name)
        for each in fields(options)
        if not (each.metadata.get("added_later") and getattr(options, each.name) == each.default)
    }


@dataclass(frozen=True)
class Entry(Generic[Thing]):
    """A name, one line about it, its options with their defaults, and how it is made from options."""

    name: str
    description: str
    options: Any
    make: Callable[[Any], Thing]


class Registry(Generic[Thing]):
    """What can be named. An unknown name is answered with the nearest known one."""

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, Entry[Thing]] = {}

    def add(self, name: str, description: str, options: Any, make: Callable[[Any], Thing]) -> None:
        """Register: `make(options)` gives the thing; `options` is a frozen dataclass of its defaults."""
        if name in self._entries:
            raise ValueError(f"There is a {self.kind} named {name!r} already.")
        self._entries[name] = Entry(name, description, options, make)

    def entry(self, name: str) -> Entry[Thing]:
        """The entry of this name."""
        return self._entries[checks.one_of(self.kind, name, self._entries)]

    def create(self, name: str, options: Any = None) -> Thing:
        """The thing of this name, with its default options or with these."""
        entry = self.entry(name)
        return entry.make(entry.options if options is None else options)

    def __iter__(self) -> Iterator[Entry[Thing]]:
        return iter(self._entries.values())

    def __contains__(self, name: str) -> bool:
        return name in self._entries
