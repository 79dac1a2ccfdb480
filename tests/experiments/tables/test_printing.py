"""A table in the terminal and as Markdown."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from bayesattn.experiments.tables.printing import as_markdown, figure, in_terminal
from bayesattn.experiments.tables.summary import summarise
from helpers.table_cases import RESULTS, TABLE

(PART,) = summarise(TABLE, RESULTS)


def test_markdown_has_ours_the_papers_and_the_difference() -> None:
    lines = as_markdown(PART).splitlines()
    assert lines[0] == "### M1"
    row = next(line for line in lines if line.startswith("| mle"))
    assert row.startswith("| mle | −27.00 ± 0.577 | −26.09 | −0.910 | 0.500 ± 0.0000 | 0.0046 | +0.495 |")
    assert row.endswith("| 1.0 |")
    assert "| ensemble | not run | −25.99 |  |" in as_markdown(PART)


def test_a_figure_that_the_paper_did_not_print_has_no_empty_column_beside_it() -> None:
    rows = tuple(
        replace(row, cells=(row.cells[0], *(replace(c, published=None) for c in row.cells[1:]))) for row in PART.rows
    )
    lines = as_markdown(replace(PART, rows=rows)).splitlines()
    header = next(line for line in lines if line.startswith("| method"))
    assert (header.count("paper"), header.count("difference")) == (1, 1)
    assert {line.count("|") for line in lines if line.startswith("|")} == {header.count("|")}
    assert "| mle | −27.00 ± 0.577 | −26.09 | −0.910 | 0.500 ± 0.0000 | 2.000 ± 0.0000 | 1.0 |" in lines


def test_the_terminal_shows_the_papers_figure_beside_ours() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(in_terminal(PART))
    assert "−27.00 ± 0.577 (−26.09)" in out.getvalue()
    assert "floor" in out.getvalue()


def testfigures_keep_what_counts() -> None:
    assert [figure(value) for value in (-26.0895, 1.0039, 0.0046)] == ["−26.09", "1.004", "0.0046"]
