"""The command line: `bayesattn …`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    try:
        _run()
    except ModuleNotFoundError as missing:
        sys.exit(f"The bayesattn command needs {missing.name}: pip install 'bayesattn[experiments]'.")
    except KeyboardInterrupt:
        sys.exit("\nStopped. Nothing half-written was left behind; start again with the same command.")


def _run() -> None:
    import tyro

    from bayesattn.demo import DemoOptions, run_demo

    commands = {"demo": (DemoOptions, run_demo)}
    options = tyro.extras.subcommand_cli_from_dict(
        {name: kind for name, (kind, _) in commands.items()},
        prog="bayesattn",
        description="Bayesian attention for PyTorch.",
    )
    for kind, run in commands.values():
        if isinstance(options, kind):
            run(options)
