"""Argument checks whose messages name the argument, the value and the remedy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import TypeVar

Name = TypeVar("Name", bound=str)


def positive(name: str, value: float, hint: str = "") -> float:
    """Return `value` as a float if it is a finite number above zero."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(_sentence(f"{name} must be a finite number above 0, got {value!r}", hint))
    return number


def finite(name: str, value: float, hint: str = "") -> float:
    """Return `value` as a float if it is a finite number."""
    number = _number(name, value)
    if not math.isfinite(number):
        raise ValueError(_sentence(f"{name} must be a finite number, got {value!r}", hint))
    return number


def not_negative(name: str, value: float, hint: str = "") -> float:
    """Return `value` as a float if it is a finite number of at least zero."""
    number = _number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(_sentence(f"{name} must be a finite number of at least 0, got {value!r}", hint))
    return number


def whole(name: str, value: int, minimum: int = 1, hint: str = "") -> int:
    """Return `value` if it is a whole number of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(_sentence(f"{name} must be a whole number of at least {minimum}, got {value!r}", hint))
    return value


def fraction(name: str, value: float) -> float:
    """Return `value` as a float if it lies in [0, 1)."""
    number = _number(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value!r}.")
    return number


def one_of(name: str, value: Name, choices: Iterable[str]) -> Name:
    """Return `value` if it is one of `choices`; suggest the nearest one otherwise."""
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name}={value!r} is not known. {suggestion(str(value), known)}")
    return value


def suggestion(value: str, known: Iterable[str]) -> str:
    """A sentence that offers the nearest of `known`, and all of them."""
    names = list(known)
    near = difflib.get_close_matches(value.lower(), [name.lower() for name in names], n=1, cutoff=0.5)
    nearest = next((name for name in names if near and name.lower() == near[0]), None)
    listing = "Choose one of: " + ", ".join(repr(name) for name in names) + "."
    return f"Did you mean {nearest!r}? {listing}" if nearest else listing


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}.") from None


def _sentence(text: str, hint: str) -> str:
    return f"{text}. {hint}" if hint else f"{text}."
