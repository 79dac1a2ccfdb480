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

    from bayesattn.experiments.commands.console import Failure
    from bayesattn.experiments.commands.run import start_run
    from bayesattn.experiments.data.files import DataError
    from bayesattn.experiments.plugins import load_plugins

    console = Console()
    known = commands()
    kinds = {name: kind for name, (kind, _) in known.items()}
    names = [argument for argument in arguments[1:3] if not argument.startswith("-")]
    try:
        load_plugins()
        if arguments[:1] == ["run"] and len(names) == 2:
            start_run(arguments[1:], console)
            return
        options = tyro.extras.subcommand_cli_from_dict(
            kinds, prog="bayesattn", description="Bayesian attention for PyTorch.", args=arguments
        )
        handle = dict(known.values())[type(options)]
        handle(options, console)
    except (Failure, DataError, OSError, ValueError) as problem:
        sys.exit(f"bayesattn: {problem}")


def commands() -> dict[str, tuple[type, Callable[[Any, Any], object]]]:
    """The commands by name: their options, and what does them with a console to print on."""
    from bayesattn.experiments.commands import texts
    from bayesattn.experiments.commands.align import AlignCommand, draw_alignment
    from bayesattn.experiments.commands.demo import DemoOptions, run_demo
    from bayesattn.experiments.commands.fidelity import FidelityCommand, write_fidelity
    from bayesattn.experiments.commands.figure import FigureCommand, make_figure
    from bayesattn.experiments.commands.listing import ListCommand, list_names
    from bayesattn.experiments.commands.prior import PriorCommand, show_prior
    from bayesattn.experiments.commands.queue import QueueCommand, manage_queue
    from bayesattn.experiments.commands.render import RenderCommand, render_document
    from bayesattn.experiments.commands.report import ReportCommand, write_report
    from bayesattn.experiments.commands.run import RunCommand, say_how_to_run
    from bayesattn.experiments.commands.show import ShowCommand, draw_regions
    from bayesattn.experiments.commands.study import StudyCommand, make_study
    from bayesattn.experiments.commands.table import TableCommand, make_table

    return {
        "demo": (DemoOptions, run_demo),
        "list": (ListCommand, list_names),
        "run": (RunCommand, say_how_to_run),
        "table": (TableCommand, make_table),
        "queue": (QueueCommand, manage_queue),
        "render": (RenderCommand, render_document),
        "fidelity": (FidelityCommand, write_fidelity),
        "report": (ReportCommand, write_report),
        "align": (AlignCommand, draw_alignment),
        "interpolate": (texts.InterpolateCommand, texts.interpolate),
        "sample": (texts.SampleCommand, texts.sample),
        "figures": (texts.FiguresCommand, texts.draw_figures),
        "figure": (FigureCommand, make_figure),
        "study": (StudyCommand, make_study),
        "prior": (PriorCommand, show_prior),
        "show": (ShowCommand, draw_regions),
    }
