"""JSON that somebody else may have written, or a full disk cut off: values, or words about what is wrong with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    """What the JSON file holds."""
    return parse(Path(path).read_bytes(), path)


def parse(content: bytes, source: object) -> Any:
    """The values in these bytes; `source` says in a message where they are from.

    >>> parse(b'{"k": 2.0}', "config.json")
    {'k': 2.0}
    """
    try:
        values = json.loads(content.decode())
    except RecursionError:
        raise ValueError(f"{source} is not JSON for us: its lists are nested too deeply.") from None
    except ValueError as problem:  # bytes that are no UTF-8, text that is no JSON, numbers of thousands of digits
        raise ValueError(f"{source} is not JSON: {problem}. It is probably truncated.") from None
    if re.search(rb"\\u[dD]", content) and not _is_text(json.dumps(values, ensure_ascii=False)):
        raise ValueError(f"{source} holds half of a surrogate pair (\\ud800 to \\udfff), which is no text.")
    return values


def _is_text(content: str) -> bool:
    try:
        content.encode()
    except UnicodeEncodeError:
        return False
    return True
