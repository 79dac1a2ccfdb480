"""docs/fidelity.md: every table and figure of the papers has a command or a reason, and a state that is true."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import tyro

from bayesattn.experiments.cli import command
from bayesattn.experiments.commands.table import TableCommand
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables import fidelity as page
from bayesattn.experiments.tables.document import PAPERS
from bayesattn.experiments.tables.fidelity import Printed, printed_in, state, write_page
from bayesattn.experiments.tables.results import TableResults, write
from bayesattn.experiments.tasks import TASKS
from helpers.table_cases import made_up

ROOT = Path(__file__).parents[3]
EVERYTHING = [entry for name, paper in PAPERS.items() if paper.printed for entry in printed_in(name)]
NUMBERED = {
    "bam": [*(f"table {n}" for n in range(1, 10)), "figure 1", "figure 2"],
    "bayesian-transformers": [
        *(f"figure 1.{n}" for n in range(1, 7)),
        "figure 2.1",
        *(f"figure 3.{n}" for n in range(1, 15)),
        *(f"table 3.{n}" for n in range(1, 16)),
        *(f"table A.{n}" for n in range(1, 9)),
    ],
    "latent-alignment": [*(f"table {n}" for n in range(1, 4)), *(f"figure {n}" for n in range(1, 5))],
    "nvib": [f"figure {n}" for n in range(1, 7)],
}
"""What the captions of the papers number."""


def test_the_projects_page_is_what_the_command_writes(tmp_path: Path) -> None:
    write_page(ROOT / "results", tmp_path / "fidelity.md")
    assert (tmp_path / "fidelity.md").read_text() == (ROOT / "docs/fidelity.md").read_text(), "run `bayesattn fidelity`"


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_table_and_figure_is_listed(paper: str) -> None:
    assert {entry.printed.split(",")[0] for entry in printed_in(paper)} >= set(NUMBERED[paper])


def test_a_line_without_command_and_reason_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table 1 \(scores\) has neither a command nor a reason"):
        Printed("table 1", "scores", "", "", "", "none")


@pytest.mark.parametrize("entry", [each for each in EVERYTHING if each.command], ids=lambda each: each.printed)
def test_a_command_can_be_typed_and_names_what_there_is(entry: Printed) -> None:
    program, *words = shlex.split(entry.command)
    if program == "python":
        assert [word for word in words if word.endswith(".py")], entry.command
        assert all((ROOT / word).exists() for word in words if word.endswith(".py")), entry.command
        return
    assert program == "bayesattn"
    if words[0] == "run":
        assert TASKS.entry(words[1])
        assert METHODS.entry(words[2])
        return
    kind, _ = command(words[0])
    options = tyro.cli(kind, args=words[1:])
    if isinstance(options, TableCommand):
        table = TABLES[options.name or ""]
        assert (options.budget or "paper") in table.budget_names()
        assert set(options.only) <= set(table.tasks())
        assert set(options.methods) <= set(table.methods)
    elif hasattr(options, "task"):
        assert options.task in TASKS


ENTRY = Printed("table 3.11", "scores", "bayesattn table thesis-3.11", "", "too long", "")
ROWS = ("mle", "ensemble", "attn-gaussian")


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TABLES["thesis-3.11"]
    m1, m2 = table.datasets[:2]
    of_other_data = replace(m2, label="like M2", beside="M2")
    monkeypatch.setitem(TABLES, table.name, replace(table, datasets=(m1, of_other_data), methods=(*ROWS, "bam-wf")))


def keep(folder: Path, runs: list[tuple[str, int]]) -> None:
    write(TableResults("thesis-3.11", "paper", {}, [made_up(row, seed, -26.0, 1.0) for row, seed in runs]), folder)


@pytest.mark.usefixtures("small_table")
def test_the_state_counts_the_runs_of_the_rows_that_the_paper_prints(tmp_path: Path) -> None:
    other = "`toy-m2`: stands in, not run"
    assert state(ENTRY, tmp_path) == f"`toy-m1`: not run; {other}"
    keep(tmp_path, [("mle", 0), ("mle", 1), ("mle", 2), ("bam-wf", 0)])
    assert state(ENTRY, tmp_path) == f"`toy-m1`: budget `paper`, 3 of 9 runs; {other}"
    keep(tmp_path, [(row, seed) for row in ROWS for seed in range(3)])
    assert state(ENTRY, tmp_path) == f"`toy-m1`: complete; {other}"
    keep(tmp_path, [("mle", 0), ("bam-wc", 0)])
    assert state(ENTRY, tmp_path).startswith("`toy-m1`: budget `paper`, 1 of 9 runs and kept with earlier options: 1")


@pytest.mark.usefixtures("small_table")
def test_a_table_at_the_paper_s_budget_is_complete_and_needs_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TABLES["thesis-3.11"]
    monkeypatch.setitem(TABLES, table.name, replace(table, datasets=table.datasets[:1]))
    monkeypatch.setattr(page, "printed_in", lambda paper: [replace(ENTRY, reason="")])
    with pytest.raises(ValueError, match=r"table 3.11 \(scores\) is not complete \(`toy-m1`: not run\)"):
        write_page(tmp_path, tmp_path / "page.md")
    keep(tmp_path, [(row, seed) for row in ROWS for seed in range(3)])
    assert "| complete | none |" in write_page(tmp_path, tmp_path / "page.md").read_text()


@pytest.mark.parametrize("entry", [each for each in EVERYTHING if each.table], ids=lambda each: each.printed)
def test_without_a_single_run_nothing_is_complete(entry: Printed, tmp_path: Path) -> None:
    assert "complete" not in state(entry, tmp_path)


def test_a_picture_is_drawn_if_it_is_there(tmp_path: Path) -> None:
    entry = Printed("figure 1", "it", "bayesattn prior mnist", "docs/images/it.png", "", "")
    (tmp_path / "docs/images").mkdir(parents=True)
    assert state(entry, tmp_path / "results") == "not drawn"
    (tmp_path / "docs/images/it.png").touch()
    assert state(entry, tmp_path / "results") == "drawn: [it.png](images/it.png)"
