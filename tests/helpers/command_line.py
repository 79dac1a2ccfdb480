"""The command line, as a person types it."""

from __future__ import annotations

import sys

import pytest

import bayesattn_command


def bayesattn(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run `bayesattn` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["bayesattn", *arguments])
    bayesattn_command.main()
