"""Every Python block of README and docs runs as printed; a `text` block right after one is what it prints."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tasks import TASKS
from bayesattn.support.configurable import Configurable

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONG = {"tools.md"}
"""Pages that import much; what they show is tested in tests/huggingface too."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _registries_as_they_were() -> Iterator[None]:
    """What a page registers is gone after it: other tests go through all tasks, methods and tables."""
    registries = (TASKS._entries, METHODS._entries, TABLES, Configurable.registry)
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.name in LONG else page for page in PAGES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_code_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unchecked: None
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    printed = None
    for language, text in BLOCK.findall(page.read_text()):
        if language == "python":
            torch.manual_seed(0)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(page), "exec"), namespace)
            printed = out.getvalue()
        elif language == "text" and printed is not None:
            assert printed.strip() == text.strip()
            printed = None
        else:
            printed = None


def test_every_page_is_found() -> None:
    assert {page.relative_to(ROOT).as_posix() for page in PAGES} >= {
        "README.md",
        "docs/design.md",
        "docs/tutorials/new-posterior.md",
    }
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_runs_from_top_to_bottom_and_prints_what_it_shows(notebook: Path, unchecked: None) -> None:
    namespace: dict[str, object] = {}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile("".join(cell["source"]), str(notebook), "exec"), namespace)
            assert out.getvalue() == "".join(line for shown in cell["outputs"] for line in shown["text"])
