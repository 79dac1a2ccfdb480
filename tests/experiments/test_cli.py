"""The command line: what it says when something is missing."""

from __future__ import annotations

import errno
import sys

import pytest

from bayesattn.experiments import cli
from bayesattn.experiments.commands import listing


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.setattr(sys, "argv", ["bayesattn", "demo"])
    with pytest.raises(SystemExit, match=r"needs tyro: pip install 'bayesattn\[experiments\]'"):
        cli.main()


def test_an_unknown_command_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bayesattn", "dmeo"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "demo" in capsys.readouterr().err


def test_a_full_disk_is_said_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "results/table.json")

    monkeypatch.setattr(listing, "list_names", full)
    monkeypatch.setattr(sys, "argv", ["bayesattn", "list"])
    with pytest.raises(SystemExit, match=r"^bayesattn: .*No space left on device: 'results/table.json'$"):
        cli.main()
