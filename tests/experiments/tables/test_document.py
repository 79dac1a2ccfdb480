"""docs/results.md and the pages of the papers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.experiments.tables.document import PAPERS, kept_files, paper_of, render
from bayesattn.experiments.tables.registered import TABLES
from bayesattn.experiments.tables.results import read, write
from helpers.table_cases import RESULTS

ROOT = Path(__file__).parents[3]


def test_the_document_has_every_table_and_its_reading(tmp_path: Path) -> None:
    write(RESULTS, tmp_path)
    (tmp_path / "thesis-3.11.reading.md").write_text(
        "The floor holds: ![it](images/floor.png), [here](https://a.b), [there](#x).\n"
    )
    (tmp_path / "findings.md").write_text("Little helps.\n")
    front = render(tmp_path, tmp_path / "docs" / "results.md").read_text()
    assert "Little helps." in front
    assert "## [Bayesian transformers](results/bayesian-transformers.md)" in front
    assert "`bayesattn table thesis-3.11`" in front
    pages = list((tmp_path / "docs" / "results").iterdir())
    assert [page.name for page in pages] == ["bayesian-transformers.md"]
    text = pages[0].read_text()
    assert "## Table 3.11" in text
    assert "The floor holds: ![it](../images/floor.png), [here](https://a.b), [there](#x)." in text
    assert "| floor | −25.00 |" in text
    assert "Commits: abc" in text


def test_an_empty_folder_is_no_results(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="bayesattn table NAME"):
        render(tmp_path, tmp_path / "results.md")


def test_the_projects_document_is_rendered_from_its_results(tmp_path: Path) -> None:
    if not kept_files(ROOT / "results"):
        pytest.skip("no results are kept yet")
    render(ROOT / "results", tmp_path / "results.md")
    pages = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.md")}
    assert pages == {
        path.relative_to(ROOT / "docs") for path in [ROOT / "docs/results.md", *(ROOT / "docs/results").iterdir()]
    }
    for page in pages:
        assert (tmp_path / page).read_text() == (ROOT / "docs" / page).read_text()


def test_every_table_is_on_a_paper_s_page() -> None:
    assert all(paper_of(name) in PAPERS for name in TABLES)


def test_results_of_the_tree_before_the_move_render_to_the_same_figures(tmp_path: Path) -> None:
    """before_the_move has a file of results as the tree before the move of issue 20 (commit dffcbaf) had it, and its section there."""
    folder = Path(__file__).parent / "before_the_move"
    render(folder, tmp_path / "results.md")
    (page,) = (tmp_path / "results").iterdir()
    (section,) = page.read_text().split("\n## ")[1:]
    head, figures = (folder / "section.md").read_text().split("\n### ")
    # not the words above the figures: the number of seeds was counted wrongly there ("1 to 2" where every row had two)
    assert [line for line in figures.splitlines() if line.startswith("|")] == [
        line for line in section.split("\n### ")[1].splitlines() if line.startswith("|")
    ]
    assert "## " + "\n".join(section.splitlines()[:3]) == "\n".join(head.splitlines()[:3]), (
        "the rest of it is its reading"
    )


@pytest.mark.parametrize("path", kept_files(ROOT / "results"), ids=lambda path: path.name)
def test_no_kept_run_beats_the_floor(path: Path) -> None:
    for run in read(path).runs:
        if "gap_to_floor" in run["metrics"]:
            assert run["metrics"]["gap_to_floor"] > -2 * run["metrics"]["gap_to_floor_se"], run["config"]
