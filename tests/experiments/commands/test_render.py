"""`bayesattn render`: what it says where there is nothing to render."""

from __future__ import annotations

import pytest

from helpers.command_line import bayesattn

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_without_results_it_says_how_to_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"There are no results in results: make them with `bayesattn table NAME`"):
        bayesattn(monkeypatch, "render")
