"""The command line: `bayesattn …`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bayesattn_command import COMMANDS

EXTRAS = {"ray": "ray", "gradio": "explore", "transformers": "hf"}
"""Where a package is asked for; others come with `experiments`."""


def run() -> None:
    """Run the command that the arguments name."""
    try:
        _run(sys.argv[1], sys.argv[2:])
    except ModuleNotFoundError as missing:
        extra = EXTRAS.get(missing.name or "", "experiments")
        sys.exit(f"The bayesattn command needs {missing.name}: pip install 'bayesattn[{extra}]'.")


def _run(name: str, arguments: list[str]) -> None:
    import tyro
    from rich.console import Console

    from bayesattn.experiments.commands.console import Failure
    from bayesattn.experiments.data.files import DataError
    from bayesattn.experiments.plugins import load_plugins

    console = Console()
    try:
        load_plugins()
        if name == "run" and len([word for word in arguments[:2] if not word.startswith("-")]) == 2:
            from bayesattn.experiments.commands.run import start_run

            start_run(arguments, console)
            return
        options, handle = command(name)
        handle(tyro.cli(options, prog=f"bayesattn {name}", args=arguments), console)
    except (Failure, DataError, OSError, ValueError) as problem:
        sys.exit(f"bayesattn: {problem}")


def command(name: str) -> tuple[type, Callable[[Any, Any], object]]:
    """The options of a command, and what does it with a console to print on; nothing else is imported."""
    place = COMMANDS[name]
    module = import_module(f"bayesattn.experiments.commands.{place.module}")
    return getattr(module, place.options), getattr(module, place.handle)
