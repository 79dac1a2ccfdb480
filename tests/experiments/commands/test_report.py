"""`bayesattn report` of tables, as a person types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.tables import results as kept_results
from helpers.command_line import bayesattn
from helpers.table_cases import RESULTS

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_report_of_a_table_is_written_and_an_unknown_target_suggests_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=r"There are no results in results: make them with `bayesattn table NAME`"):
        bayesattn(monkeypatch, "report")
    kept_results.write(RESULTS, tmp_path / "results")
    bayesattn(monkeypatch, "report", "-o", "all.html")
    assert (tmp_path / "all.html").as_uri() in capsys.readouterr().out.replace("\n", "")
    assert "−27.00 ± 0.577" in (tmp_path / "all.html").read_text()
    with pytest.raises(SystemExit, match=r"thesis-3\.11"):
        bayesattn(monkeypatch, "report", "thesis-3.1l")
    with pytest.raises(SystemExit, match=r"--sentences goes with one folder of a saved model, got 0 targets"):
        bayesattn(monkeypatch, "report", "--sentences", "some.txt")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished/config.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"unfinished holds no finished run"):
        bayesattn(monkeypatch, "report", "unfinished")
