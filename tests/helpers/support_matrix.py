"""The support matrix of `benchmarks/`, whose checks the tests run on some architectures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def load() -> Any:
    """The module `benchmarks/support_matrix.py`."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import support_matrix  # pyright: ignore[reportMissingImports]

    return support_matrix
