"""Names on the command line and what they stand for: one registry each for tasks, methods and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bayesattn import checks

Thing = TypeVar("Thing")


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
