"""Printing a table and the document takes few calls: names once, floors from the file, no data."""

from __future__ import annotations

import cProfile
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from bayesattn.experiments.commands.table import TableCommand, make_table
from bayesattn.experiments.runs import RunConfig
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.document import render
from bayesattn.experiments.tables.results import collect, read, write
from bayesattn.experiments.tasks import TASKS

RESULTS = Path(__file__).parents[3] / "results"
PACKAGE = str(Path(sys.modules["bayesattn"].__file__ or "").parent)


def calls(function: Callable[[], object]) -> int:
    """Calls of Python functions of the package."""
    profile = cProfile.Profile(builtins=False)
    profile.runcall(function)
    return sum(
        entry.callcount
        for entry in profile.getstats()
        if not isinstance(entry.code, str) and entry.code.co_filename.startswith(PACKAGE)
    )


@pytest.fixture
def _new_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: no table has made its configs yet."""
    for name, table in TABLES.items():
        monkeypatch.setitem(TABLES, name, dataclasses.replace(table))


@pytest.mark.usefixtures("_new_tables", "unchecked")
def test_a_table_of_234_runs_is_printed_with_a_tenth_of_the_calls_that_it_took(tmp_path: Path) -> None:
    """159,339 in commit dffcbaf, counted in the same way."""
    name = "thesis-3.11-small.json"
    (tmp_path / name).write_bytes((RESULTS / name).read_bytes())
    command = TableCommand("thesis-3.11", run=False, budget="small", folder=tmp_path / "none", results=tmp_path)
    assert calls(lambda: make_table(command, Console(quiet=True))) <= 15_933
    assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes()


@pytest.mark.usefixtures("_new_tables", "unchecked")
def test_the_document_is_rendered_with_a_fifth_of_the_calls_that_it_took(tmp_path: Path) -> None:
    """560,000 in commit dffcbaf, for the same files."""
    assert calls(lambda: render(RESULTS, tmp_path / "results.md")) <= 560_000 / 5


def test_floors_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = read(RESULTS / "thesis-3.11-small.json")
    monkeypatch.setattr(type(TASKS.create("toy-m1")), "floor", None)
    collected = collect(TABLES["thesis-3.11"], "small", kept.configs, tmp_path, kept)
    assert collected == kept
    assert read(write(collected, tmp_path)) == kept


def test_configs_that_are_read_together_are_those_read_one_by_one() -> None:
    for path in RESULTS.glob("thesis-3.*-small.json"):
        kept = read(path)
        assert kept.configs == [RunConfig.from_json(run["config"]) for run in kept.runs]
        assert [each.name for each in kept.configs] == [RunConfig.from_json(run["config"]).name for run in kept.runs]
