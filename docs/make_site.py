"""Build the documentation: python docs/make_site.py [FOLDER]. The site is FOLDER/site, by default build/site.

The pages of this folder, and pages that are made and not written: one for each posterior, the API reference, and in the pages
of the papers what was found.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import yaml

import bayesattn as ba
from bayesattn.experiments.tables import TABLES, Table
from bayesattn.experiments.tables.document import kept_files, paper_of, reading_of
from bayesattn.experiments.tables.results import read
from bayesattn.posteriors import POSTERIORS

DOCS = Path(__file__).parent.resolve()
ROOT = DOCS.parent

ROOMS = [name for name in ba.__all__ if inspect.ismodule(getattr(ba, name))]
FURTHER = ["huggingface", "numerics.counter_noise", "numerics.draws", "posteriors.rows", "support.configurable"]
"""What is not in `bayesattn` itself, but a posterior of one's own or a Hugging Face model needs."""
EXPERIMENTS = [f"experiments.{name}" for name in ("tasks", "methods", "runs", "tables", "registry")]
"""What a task, a method or a table of one's own is written with."""

FINDINGS = re.compile(r"<!-- findings: (.+?) -->")


def make_site(folder: Path) -> Path:
    """Make the site in `folder`; its first page. Fails if a link leads nowhere."""
    pages = folder / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "*.yml", "__pycache__"))
    for page in (pages / "papers").glob("*.md"):
        page.write_text(FINDINGS.sub(lambda match: findings(tuple(match[1].split())), page.read_text()))
    for name, text in made_pages():
        (pages / name).parent.mkdir(exist_ok=True)
        (pages / name).write_text(text)
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings(), sort_keys=False))
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(folder / "mkdocs.yml"),
    ]
    subprocess.run(command, check=True)
    return folder / "site" / "index.html"


def settings() -> dict:
    """site.yml, with the made pages in its navigation."""
    found = yaml.safe_load((DOCS / "site.yml").read_text())
    made = {
        "Posteriors": ["posteriors/index.md", *(f"posteriors/{name}.md" for name in POSTERIORS)],
        "API reference": [f"reference/{name}.md" for name in ("index", *ROOMS, *FURTHER, *EXPERIMENTS)],
    }
    found["nav"] = [{title: made.get(title, pages) for title, pages in entry.items()} for entry in found["nav"]]
    python = found["plugins"]["mkdocstrings"]["handlers"]["python"]
    python["paths"] = [str(ROOT / "src")]
    python["options"]["extensions"] = [f"{DOCS / 'doctests.py'}:Doctests"]
    return found


def made_pages() -> Iterator[tuple[str, str]]:
    """The name and the text of every page that nobody writes."""
    yield "posteriors/index.md", _posteriors()
    for name, posterior in POSTERIORS.items():
        head = f"---\ntitle: {posterior.__name__}\nhide: [toc]\n---\n\n"
        yield f"posteriors/{name}.md", head + _documented(f"bayesattn.{posterior.__name__}", heading_level=1)
    yield "reference/index.md", _names_of_the_package()
    for room in (*ROOMS, *FURTHER, *EXPERIMENTS):
        yield f"reference/{room}.md", _room(importlib.import_module(f"bayesattn.{room}"))


def _documented(path: str, **options: object) -> str:
    return f"::: {path}\n    options: {json.dumps(options)}"


def _path(module: ModuleType, name: str) -> str:
    """Where a name of a module is documented: a function that has the name of its file, as `convert`, is looked for in there."""
    found = f"{module.__name__}.{name}"
    is_file = inspect.ismodule(sys.modules.get(found))
    return f"{getattr(module, name).__module__}.{name}" if is_file else found


def _room(module: ModuleType) -> str:
    """Everything that a module offers: what it lists, or else what is written in it."""
    listed = getattr(module, "__all__", None) or [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]
    # constants last: some are long
    names = sorted((name for name in listed if not inspect.ismodule(getattr(module, name))), key=str.isupper)
    head = f"---\ntitle: {module.__name__.removeprefix('bayesattn.')}\n---\n\n"
    parts = [_documented(module.__name__, heading_level=1, members=False)]
    parts += [_documented(_path(module, name), heading_level=2) for name in names]
    return head + "\n\n".join(parts)


def _posteriors() -> str:
    """The list of the posteriors, and the contract."""
    rows = [f"| [{kind.__name__}]({name}.md) | {_first_words(kind)} |" for name, kind in POSTERIORS.items()]
    introduction = (
        "Scores in, random log weights out, a KL on the side. Each page is the docstring of its class; another one is\n"
        "[a file of your own](../tutorials/new-posterior.md)."
    )
    listed = "\n".join(["| posterior | |", "| --- | --- |", *rows])
    return "\n\n".join(
        ["# Posteriors", introduction, listed, "## The contract", _documented("bayesattn.Posterior", heading_level=3)]
    )


def _names_of_the_package() -> str:
    """Every name of `bayesattn`, grouped by the file that it comes from; posteriors and rooms have pages of their own."""
    elsewhere = {kind.__name__ for kind in POSTERIORS.values()} | {"Posterior", *ROOMS}
    groups: dict[str, list[str]] = {}
    for name in ba.__all__:
        if name not in elsewhere:
            groups.setdefault(getattr(ba, name).__module__.split(".")[1], []).append(name)
    pages = [
        *(f"[{kind.__name__}](../posteriors/{name}.md)" for name, kind in POSTERIORS.items()),
        *(f"[{room}]({room}.md)" for room in ROOMS),
    ]
    parts = [f"# bayesattn\n\n{_first_words(ba)}\n\nOn pages of their own: {', '.join(pages)}."]
    for group, names in sorted(groups.items()):
        parts.append(f"## {group}\n\n{_first_words(sys.modules[f'bayesattn.{group}'])}")
        parts += [_documented(_path(ba, name), heading_level=3) for name in names]
    return "\n\n".join(parts)


def findings(prefixes: tuple[str, ...]) -> str:
    """What was found of the tables whose names begin so, from `results/`; and which were not run."""
    found = {read(path).table for path in kept_files(ROOT / "results")}
    tables = [table for table in TABLES.values() if table.name.startswith(prefixes)]
    parts = [_finding(table) for table in tables if table.name in found]
    missing = [f"| `bayesattn table {table.name}` | {table.title} |" for table in tables if table.name not in found]
    if missing:
        parts.append("\n".join(["### Not run here yet", "", "| command | table |", "| --- | --- |", *missing]))
    return "\n\n".join(parts)


def _finding(table: Table) -> str:
    from markdown.extensions.toc import slugify

    text = reading_of(table.name, ROOT / "results") or "No reading has been written of these figures."
    page = f"../results/{paper_of(table.name)}.md"
    where = f"[The figures]({page}#{slugify(table.title, '-')}), `bayesattn table {table.name}`."
    return f"### {table.title}\n\n{text}\n\n{where}"


def _first_words(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    first_page = make_site(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve())
    print(f"Open it in a browser: {first_page.as_uri()}")
