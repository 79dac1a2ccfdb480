"""Which layers: the `where=` argument of `convert`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence

from torch import nn

Where = Callable[[str, nn.Module], bool] | int | str | Sequence[int] | Sequence[str] | None

_ENDS = re.compile(r"(first|last)(?: (\d+))?(?: layers?)?")


def select(
    layers: dict[str, nn.Module], where: Where, roles: Mapping[str, str] | None = None, kind: str = "attention layers"
) -> dict[str, nn.Module]:
    """The chosen layers, in the order of the model; `kind` is what messages call them.

    `where` is None (all), a predicate of (name, layer), an index or several (negative ones count from the end),
    "first", "last", "last 2 layers", or one or more names or patterns ("encoder.*"); or "self" or "cross", by the layers' `roles`.
    """
    if where is None:
        return layers
    names = list(layers)
    if callable(where):
        chosen = [name for name in names if where(name, layers[name])]
    elif where in ("self", "cross") and where not in layers:
        chosen = [name for name in names if (roles or {}).get(name) == where]
    elif isinstance(where, str) and (ends := _ENDS.fullmatch(where)):
        count = int(ends[2] or 1)
        if not 1 <= count <= len(names):
            raise ValueError(f"where={where!r} asks for {count} layers, the model has {len(names)}: {_listing(names)}")
        chosen = names[:count] if ends[1] == "first" else names[-count:]
    else:
        wanted = [where] if isinstance(where, (int, str)) else list(where)
        chosen_set: set[str] = set()
        for item in wanted:
            chosen_set.update(_by_index(names, item, kind) if isinstance(item, int) else _by_name(names, item, kind))
        chosen = [name for name in names if name in chosen_set]
    if not chosen:
        raise ValueError(f"where={where!r} chooses none of the model's {kind}: {_listing(names)}")
    return {name: layers[name] for name in chosen}


def _by_index(names: list[str], index: int, kind: str) -> list[str]:
    if not -len(names) <= index < len(names):
        raise ValueError(f"where={index} is out of range, the model has {len(names)} {kind}: {_listing(names)}")
    return [names[index]]


def _by_name(names: list[str], pattern: str, kind: str) -> list[str]:
    if not isinstance(pattern, str):
        raise TypeError(f"where must be a predicate, an index, a name or a list of those; got {pattern!r}.")
    found = [name for name in names if name == pattern or fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise ValueError(f"where={pattern!r} matches none of the model's {kind}: {_listing(names)}")
    return found


def _listing(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return shown + (f", … ({len(names)} in all)." if len(names) > 12 else ".")
