"""What a training step of each task costs: as it was, with batches of similar length and a fused Adam, and in bfloat16.

    python benchmarks/training.py [--only cola tatoeba] [--repeats 3] [--steps 30]

A piece of each task's training, with the settings of a table's row, by the engine that runs all tables: `steps` batches of
the same random examples, forward, backward and Adam, without validation. The three forms take turns; a ratio is the median over repeats of
(form / float32 of the same repeat). One thread, and the processor's own time, which other programs disturb less than the wall's. The
figures of a task replace those in the file of results.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import shlex
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from bayesattn.experiments.runs import RunFolder
from bayesattn.experiments.runs.checkpoints import Checkpoints
from bayesattn.experiments.runs.config import RunConfig
from bayesattn.experiments.runs.precision import denormals_are_zero
from bayesattn.experiments.runs.single import commit
from bayesattn.experiments.runs.training import Trainer
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tasks import Splits

RESULTS = Path(__file__).parents[1] / "results" / "training_benchmark.json"


class Piece(NamedTuple):
    """A row of a table at one of its budgets, of which some steps are trained."""

    table: str
    budget: str
    task: str
    row: str
    by_length: bool = False
    """Whether batches of similar length have to be asked for: of translation, GLUE and open texts they always are."""
    task_options: dict[str, Any] = {}  # noqa: RUF012  # nobody writes it


PIECES = {
    "tatoeba": Piece("deng-1-tatoeba", "judge", "tatoeba", "soft"),
    "tatoeba, variational-sampled": Piece("deng-1-tatoeba", "judge", "tatoeba", "variational-sampled"),
    "nvae": Piece("nvae", "judge", "nvae-wikitext2", "nvae-0.2", by_length=True),
    "pos": Piece("thesis-3.11", "judge", "pos", "mle"),
    "mnist": Piece("thesis-3.11", "judge", "mnist", "mle"),
    "cola": Piece("bam-5", "small", "cola", "mle", task_options={"frozen_layers": 0, "max_length": 128}),
    "cola, bam-wc": Piece("bam-5", "small", "cola", "bam-wc", task_options={"frozen_layers": 0, "max_length": 128}),
    "clinc150": Piece("keep", "paper", "clinc150", "mle"),
    "flickr8k": Piece("bam-3", "judge", "flickr8k", "soft", by_length=True),
    "cifar10": Piece("keep", "paper", "cifar10", "mle"),
}
FORMS = ("float32", "by length, fused", "bf16")


def settings(piece: Piece, form: str) -> dict[str, Any]:
    """Of `Training`, for one of the forms; each has what the one before it has."""
    if form == "float32":
        return {}
    return {"fused": True, "by_length": piece.by_length} | ({"precision": "bf16"} if form == "bf16" else {})


def prepared(piece: Piece, form: str, steps: int) -> tuple[RunConfig, Splits]:
    """The run of so many steps, and its examples."""
    [usual] = TABLES[piece.table].configs(piece.budget, seeds=1, tasks=[piece.task], methods=[piece.row])
    plain = usual.to_json()
    config = RunConfig.from_json(
        plain
        | {
            "training": plain["training"] | {"epochs": 1} | settings(piece, form),
            "task_options": plain["task_options"] | piece.task_options,
        }
    )
    splits = config.make_task().load()
    order = torch.randperm(len(splits.train[0]), generator=torch.Generator().manual_seed(0))
    chosen = order[: steps * config.training.batch_size]
    few = tuple(tensor[:2] for tensor in splits.validation)
    return config, replace(splits, train=tuple(tensor[chosen] for tensor in splits.train), validation=few)


def seconds_per_step(config: RunConfig, splits: Splits) -> float:
    with tempfile.TemporaryDirectory() as parent, denormals_are_zero():
        folder = RunFolder.of(Path(parent), config)
        checkpoints = Checkpoints(folder, math.inf)
        trainer = Trainer(config, folder, Accelerator(cpu=True), checkpoints, lambda line: None)
        trainer.task.load()  # what a task prepares for its model
        return trainer.fit(splits).seconds_per_step


def measure(piece: Piece, repeats: int, steps: int) -> dict[str, Any]:
    """Seconds of a step in each form, and the median of the ratios to float32."""
    pieces = {form: prepared(piece, form, steps) for form in FORMS}
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    for repeat in range(repeats + 1):
        for form, (config, splits) in pieces.items():
            taken = seconds_per_step(config, splits)
            if repeat:  # the first is warm-up
                seconds[form].append(taken)
    ratios = {
        form: statistics.median(a / b for a, b in zip(seconds[form], seconds["float32"], strict=True)) for form in FORMS
    }
    config, splits = pieces["float32"]
    return {
        "piece": f"{piece.row} of table {piece.table}, budget {piece.budget}",
        "task_options": piece.task_options,
        "steps": math.ceil(len(splits.train[0]) / config.training.batch_size),
        "batch": config.training.batch_size,
        "seconds": {form: statistics.median(each) for form, each in seconds.items()},
        "ratio": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(PIECES), choices=list(PIECES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kept: dict[str, Any] = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    for name in arguments.only:
        figures = measure(PIECES[name], arguments.repeats, arguments.steps)
        kept[name] = figures | {
            "command": f"python {shlex.join(sys.argv)}",
            "commit": commit(),
            "torch": torch.__version__,
            "machine": f"{platform.machine()}, {_processor()}",
        }
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n")
        print(name, {form: round(value, 2) for form, value in figures["ratio"].items()}, flush=True)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown processor"
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown processor")
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return f"{name}, {', '.join(flag for flag in ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16') if flag in flags)}"


if __name__ == "__main__":
    main()
