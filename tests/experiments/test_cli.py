"""The command line: what it says when something is missing."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

import bayesattn_command
from bayesattn.experiments import cli
from bayesattn.experiments.commands import listing


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.setattr(sys, "argv", ["bayesattn", "demo"])
    with pytest.raises(SystemExit, match=r"needs tyro: pip install 'bayesattn\[experiments\]'"):
        bayesattn_command.main()


def test_an_unknown_command_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bayesattn", "dmeo"])
    with pytest.raises(SystemExit) as stopped:
        bayesattn_command.main()
    assert stopped.value.code == 2
    assert "demo" in capsys.readouterr().err


def test_a_full_disk_is_said_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "results/table.json")

    monkeypatch.setattr(listing, "list_names", full)
    monkeypatch.setattr(sys, "argv", ["bayesattn", "list"])
    with pytest.raises(SystemExit, match=r"^bayesattn: .*No space left on device: 'results/table.json'$"):
        bayesattn_command.main()


def test_every_command_has_options_and_work_and_is_in_the_help() -> None:
    for name in bayesattn_command.COMMANDS:
        options, handle = cli.command(name)
        assert options.__doc__
        assert callable(handle)
        assert name in bayesattn_command.usage()


@pytest.mark.parametrize("word", ["--help", "--version", "tabel"])
def test_the_first_answers_need_no_torch(word: str) -> None:
    program = (
        "import sys, bayesattn_command\n"
        "try: bayesattn_command.main()\n"
        "finally: assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", program, word], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert {"--help": "One queue of runs", "--version": "bayesattn 0", "tabel": "Did you mean 'table'?"}[word] in said
