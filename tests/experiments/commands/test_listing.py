"""`bayesattn list`: every name, and what is missing."""

from __future__ import annotations

import pytest

from helpers.command_line import bayesattn

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_list_names_everything_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bayesattn(monkeypatch, "list")
    printed = capsys.readouterr().out
    assert all(
        name in printed for name in ("toy-m5", "pos", "mnist", "digits", "attn-dirichlet-approx-dd", "thesis-3.15")
    )
    assert "missing: ud_ewt/en_ewt-ud-train.conllu" in printed
    monkeypatch.setenv("COLUMNS", "80")
    bayesattn(monkeypatch, "list")
    assert "…" not in capsys.readouterr().out, "what must be read is not cut"
