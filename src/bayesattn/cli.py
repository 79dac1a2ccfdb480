"""The command line: `bayesattn …`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Run the command that the arguments name."""
    try:
        _run(sys.argv[1:])
    except ModuleNotFoundError as missing:
        extra = "ray" if missing.name == "ray" else "experiments"
        sys.exit(f"The bayesattn command needs {missing.name}: pip install 'bayesattn[{extra}]'.")
    except KeyboardInterrupt:
        sys.exit("\nStopped. Nothing half-written was left behind; the same command goes on from the last checkpoint.")


def _run(arguments: list[str]) -> None:
    import tyro
    from rich.console import Console

    from bayesattn import commands, text_commands
    from bayesattn.align import AlignCommand, draw_alignment
    from bayesattn.data.files import DataError
    from bayesattn.demo import DemoOptions, run_demo
    from bayesattn.plugins import load_plugins
    from bayesattn.prior_command import PriorCommand, show_prior
    from bayesattn.show import ShowCommand, show
    from bayesattn.study_command import StudyCommand, make_study

    console = Console()
    known: dict[str, tuple[type, Callable[[Any, Console], object]]] = {
        "demo": (DemoOptions, run_demo),
        "list": (commands.ListCommand, commands.list_names),
        "run": (commands.RunCommand, commands.say_how_to_run),
        "table": (commands.TableCommand, commands.make_table),
        "render": (commands.RenderCommand, commands.render_document),
        "report": (commands.ReportCommand, commands.write_report),
        "align": (AlignCommand, draw_alignment),
        "interpolate": (text_commands.InterpolateCommand, text_commands.interpolate),
        "sample": (text_commands.SampleCommand, text_commands.sample),
        "figures": (text_commands.FiguresCommand, text_commands.draw_figures),
        "study": (StudyCommand, make_study),
        "prior": (PriorCommand, show_prior),
        "show": (ShowCommand, show),
    }
    kinds = {name: kind for name, (kind, _) in known.items()}
    names = [argument for argument in arguments[1:3] if not argument.startswith("-")]
    try:
        load_plugins()
        if arguments[:1] == ["run"] and len(names) == 2:
            commands.start_run(arguments[1:], console)
            return
        options = tyro.extras.subcommand_cli_from_dict(
            kinds, prog="bayesattn", description="Bayesian attention for PyTorch.", args=arguments
        )
        handle = dict(known.values())[type(options)]
        handle(options, console)
    except (commands.Failure, DataError, OSError, ValueError) as problem:
        sys.exit(f"bayesattn: {problem}")
