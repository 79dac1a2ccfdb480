"""The command line: `bayesattn …`."""

from __future__ import annotations

import sys


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
    from bayesattn.show import ShowCommand, show
    from bayesattn.study_command import StudyCommand, make_study

    console = Console()
    kinds = {
        "demo": DemoOptions,
        "list": commands.ListCommand,
        "run": commands.RunCommand,
        "table": commands.TableCommand,
        "render": commands.RenderCommand,
        "report": commands.ReportCommand,
        "align": AlignCommand,
        "interpolate": text_commands.InterpolateCommand,
        "sample": text_commands.SampleCommand,
        "figures": text_commands.FiguresCommand,
        "study": StudyCommand,
        "show": ShowCommand,
    }
    names = [argument for argument in arguments[1:3] if not argument.startswith("-")]
    try:
        if arguments[:1] == ["run"] and len(names) == 2:
            commands.start_run(arguments[1:], console)
            return
        options = tyro.extras.subcommand_cli_from_dict(
            kinds, prog="bayesattn", description="Bayesian attention for PyTorch.", args=arguments
        )
        if isinstance(options, DemoOptions):
            run_demo(options)
        elif isinstance(options, commands.ListCommand):
            commands.list_names(options, console)
        elif isinstance(options, commands.TableCommand):
            commands.make_table(options, console)
        elif isinstance(options, commands.RenderCommand):
            commands.render_document(options, console)
        elif isinstance(options, commands.ReportCommand):
            commands.write_report(options, console)
        elif isinstance(options, AlignCommand):
            draw_alignment(options, console)
        elif isinstance(options, text_commands.InterpolateCommand):
            text_commands.interpolate(options, console)
        elif isinstance(options, text_commands.SampleCommand):
            text_commands.sample(options, console)
        elif isinstance(options, text_commands.FiguresCommand):
            text_commands.draw_figures(options, console)
        elif isinstance(options, StudyCommand):
            make_study(options, console)
        elif isinstance(options, ShowCommand):
            show(options, console)
        else:
            sys.exit("Name the task and the method first: bayesattn run TASK METHOD [options].")
    except (commands.Failure, DataError, FileNotFoundError, ValueError) as problem:
        sys.exit(f"bayesattn: {problem}")
