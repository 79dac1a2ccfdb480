"""Names and what they stand for."""

from __future__ import annotations

import pytest

from bayesattn.experiments.registry import Registry


def test_an_entry_is_made_with_its_defaults_or_with_other_options() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("double", "twice", 4, lambda options: 2 * options)
    assert registry.create("double") == 8
    assert registry.create("double", 5) == 10
    assert [entry.description for entry in registry] == ["twice"]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("double", "twice", 4, lambda options: 2 * options)
    with pytest.raises(ValueError, match=r"number='doubel' is not known. Did you mean 'double'\?"):
        registry.create("doubel")


def test_a_name_is_given_once() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("one", "", None, lambda options: 1)
    with pytest.raises(ValueError, match="a number named 'one' already"):
        registry.add("one", "", None, lambda options: 1)
