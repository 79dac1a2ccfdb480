"""Files of one's own that add posteriors, methods, tasks or tables: those that BAYESATTN_PLUGINS names."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

VARIABLE = "BAYESATTN_PLUGINS"


def load_plugins() -> None:
    """Run the files that the environment variable names, separated as in PATH; each once in a process.

    The command line does so first, and every process of a sweep.
    """
    files = [Path(name).resolve() for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    if files:
        os.environ[VARIABLE] = os.pathsep.join(map(str, files))  # a sweep's processes may stand in another folder
    for file in files:
        name = f"bayesattn_plugin_{file.stem}"
        if name in sys.modules:
            continue
        if not file.is_file():
            raise FileNotFoundError(
                f"{VARIABLE} names {file}, which is no file: correct the path, or unset {VARIABLE}."
            )
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ValueError(f"{VARIABLE} names {file}, which is no Python file: its name must end in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and tyro look their module up there
        try:
            spec.loader.exec_module(module)
        except Exception as problem:
            del sys.modules[name]
            raise ValueError(
                f"{file}, which {VARIABLE} names, failed: {type(problem).__name__}: {problem}"
            ) from problem
