"""A page: sections in one HTML file that needs nothing else, no network and no second file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bayesattn.support.files import write_atomically


@dataclass(frozen=True)
class Section:
    """A heading, a few words, and what there is to see."""

    title: str
    body: Markup
    text: str = ""


@dataclass(frozen=True)
class Page:
    """A title, where the figures come from, and sections."""

    title: str
    text: str
    sections: tuple[Section, ...]
    conclusion: str = ""
    """What the figures come to, if one sentence can say it."""


def joined(pages: Sequence[Page]) -> Page:
    """Several pages as one; a section then says which it is from."""
    if len(pages) == 1:
        return pages[0]
    sections = tuple(
        replace(section, title=f"{page.title}: {section.title}") for page in pages for section in page.sections
    )
    conclusions = " ".join(f"{page.title}: {page.conclusion}" for page in pages if page.conclusion)
    return Page("Results", " ".join(page.text for page in pages), sections, conclusions)


def write_page(page: Page, path: Path) -> Path:
    """Write the page as one HTML file, whole or not at all."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"A report is an HTML file: name it something.html, not {path.name!r}.")
    text = template("page.html").render(page=page, numbered=list(enumerate(page.sections, 1)))
    write_atomically(path, text)
    return path


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def template(name: str) -> jinja2.Template:
    """A template of this package; what is put into it is escaped unless it is `Markup`."""
    return _environment().get_template(name)


def embedded(value: Any) -> Markup:
    """JSON for a `<template>`: nothing in it is markup."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026").replace("\u2028", "\\u2028"))
