"""Where the data sets are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.data.folder import data_folder


def test_the_variable_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "glue").mkdir()
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    assert data_folder("glue") == tmp_path / "glue"
    with pytest.raises(FileNotFoundError, match=r"'mnist' was not found in .*: set BAYESATTN_DATA"):
        data_folder("mnist")


def test_without_it_a_folder_above_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared" / "data" / "glue").mkdir(parents=True)
    (tmp_path / "project" / "examples").mkdir(parents=True)
    monkeypatch.delenv("BAYESATTN_DATA", raising=False)
    monkeypatch.chdir(tmp_path / "project" / "examples")
    assert data_folder("glue") == (tmp_path / "shared" / "data" / "glue").resolve()
