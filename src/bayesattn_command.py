"""The `bayesattn` command's first word. It stands beside the package, which imports torch: help, version and a typo need no torch."""

from __future__ import annotations

import sys
from typing import NamedTuple


class Command(NamedTuple):
    """Where a command's options and its work are, below `bayesattn.experiments.commands`, and what it is for."""

    module: str
    options: str
    handle: str
    purpose: str


COMMANDS = {
    "demo": Command("demo", "DemoOptions", "run_demo", "Handwritten digits: a table of methods, and a report."),
    "list": Command("listing", "ListCommand", "list_names", "Tasks, methods, tables, and which data is found."),
    "run": Command("run", "RunCommand", "say_how_to_run", "One run: run TASK METHOD, with --help for its options."),
    "table": Command(
        "table", "TableCommand", "make_table", "A paper's table: runs what is missing, prints and keeps it."
    ),
    "queue": Command("queue", "QueueCommand", "manage_queue", "One queue of runs for all tables."),
    "render": Command("render", "RenderCommand", "render_document", "Write the document of all kept results."),
    "fidelity": Command(
        "fidelity", "FidelityCommand", "write_fidelity", "Write how far each table and figure has been run."
    ),
    "which": Command(
        "which", "WhichCommand", "write_which", "Write which method to use, from the results of table keep."
    ),
    "report": Command("report", "ReportCommand", "write_report", "A report: one HTML file to open in a browser."),
    "explore": Command(
        "explore", "ExploreCommand", "explore_model", "A model asked live: type a sentence or drop an image."
    ),
    "align": Command("align", "AlignCommand", "draw_alignment", "Draw where a translation model looks."),
    "interpolate": Command(
        "texts", "InterpolateCommand", "interpolate", "Texts between two sentences, by an autoencoder."
    ),
    "sample": Command("texts", "SampleCommand", "sample", "Texts from the prior of a trained autoencoder."),
    "figures": Command("texts", "FiguresCommand", "draw_figures", "Figures 4 to 6 of NVAE from the runs of its table."),
    "figure": Command("figure", "FigureCommand", "make_figure", "A figure of a paper: runs what is missing, draws it."),
    "study": Command("study", "StudyCommand", "make_study", "What the weights of trained models are distributed like."),
    "prior": Command(
        "prior", "PriorCommand", "show_prior", "What untrained networks predict, by the prior of weights."
    ),
    "show": Command("show", "ShowCommand", "draw_regions", "Draw which regions of an image a fitted model looks at."),
}


def main() -> None:
    """Answer what can be answered at once, and hand the rest to `bayesattn.experiments.cli`."""
    first = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if first in ("-h", "--help"):
        print(usage())
    elif first == "--version":
        print(f"bayesattn {_version()}")
    elif first not in COMMANDS:
        print(refusal(first), file=sys.stderr)
        sys.exit(2)
    else:
        try:
            from bayesattn.experiments.cli import run  # torch is imported here

            run()
        except KeyboardInterrupt:
            sys.exit(
                "\nStopped. Nothing half-written was left behind; the same command goes on from the last checkpoint."
            )


def usage() -> str:
    """The commands and what they are for."""
    width = max(map(len, COMMANDS))
    rows = (f"  {name:{width}}  {command.purpose}" for name, command in COMMANDS.items())
    return "\n".join(
        [
            "usage: bayesattn [--help] [--version] COMMAND [OPTIONS]",
            "",
            "Bayesian attention for PyTorch.",
            "",
            *rows,
            "",
            "bayesattn COMMAND --help lists a command's options.",
        ]
    )


def refusal(word: str) -> str:
    """What is said to a word that is no command, with the command that was most likely meant."""
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, n=1)
    guess = f"Did you mean {near[0]!r}? " if near else ""
    return f"bayesattn: there is no command {word!r}. {guess}There are: {', '.join(COMMANDS)}."


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("bayesattn")
    except PackageNotFoundError:
        return "(not installed)"
