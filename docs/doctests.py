"""Doctests in docstrings as code, which Markdown would take for quotations: an extension of griffe, which reads the docstrings."""

from __future__ import annotations

import re

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


class Doctests(Extension):
    """Fences around every doctest."""

    def on_object(self, *, obj: Object, **kwargs: object) -> None:
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value)
