"""`bayesattn figure` as a person types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.analysis.paper_figures import FIGURES, PaperFigure, Places
from helpers.command_line import bayesattn

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_figure_is_made_where_it_is_told_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def make(places: Places) -> list[Path]:
        places.say("making it")
        return [places.keep("mine", {"runs": str(places.runs), "images": str(places.images)})]

    monkeypatch.setitem(FIGURES, "mine", PaperFigure("mine", "a figure of mine", make))
    bayesattn(monkeypatch, "figure", "mine", "--folder", "r", "--results", "kept", "--output", "drawn")
    printed = capsys.readouterr().out
    assert "making it" in printed
    assert "Written: kept/mine.json" in printed
    text = (tmp_path / "kept/mine.json").read_text()
    assert '"command": "bayesattn figure mine"' in text
    assert '"runs": "r"' in text
    assert '"images": "drawn"' in text
    bayesattn(monkeypatch, "figure", "--list")
    assert "a figure of mine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("figure",), "Say which figure"), (("figure", "thesis-m6"), "figure='thesis-m6' is not known. Did you mean")],
)
def test_mistakes_are_answered_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        bayesattn(monkeypatch, *arguments)


def test_every_figure_says_which_of_the_papers_it_is() -> None:
    for figure in FIGURES.values():
        assert "figure" in figure.title.lower() or "table" in figure.title.lower(), figure.name
