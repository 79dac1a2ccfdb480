"""The support matrix of `benchmarks/`, whose checks the tests run on some architectures.

Run as a program, with the name of one: what its column "compile" says."""

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


def trial(name: str) -> Any:
    """The architecture of this name, and its inputs."""
    matrix = load()
    return matrix.Trial(next(small for small in matrix.all_models() if small.name == name))


if __name__ == "__main__":
    print(load().outcome(load().COLUMNS["compile"], trial(sys.argv[1])))
