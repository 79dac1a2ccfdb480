"""What latent alignment costs: a training step of each objective against one of soft attention, as ratios of times.

    python benchmarks/alignment.py [--repeats 8] [--threads 1] [--clock wall] [--output results/alignment_benchmark.json]

The small translation model (1+1 layers, 256 units, 6,000 words) on batches of 32 pairs of random words, 8 to 20 on each side, about as
long as Multi30k's sentences. A step is forward, backward and Adam. The objectives are timed in turn on the same batch, repeat by repeat, so
that a change of the machine's load hits all alike; a ratio is the median over repeats of (objective / soft of the same repeat).
`--clock cpu` takes the process's own time instead of the wall's, for a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.alignment import OBJECTIVES, objective_by_name
from bayesattn.experiments.models.seq2seq import Seq2Seq
from bayesattn.experiments.runs.single import commit

WORDS, BATCH, SHORTEST, LONGEST = 6000, 32, 8, 20
LIMITS = {"variational-sampled": 1.6, "bam-wc": 1.2}
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
BAM = ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1e-6, hidden=5))


def sentences() -> Tensor:
    """[batch, length]: bos, random words, eos, padding."""
    lengths = torch.randint(SHORTEST, LONGEST + 1, (BATCH, 1))
    positions = torch.arange(LONGEST + 2)
    tokens = torch.randint(3, WORDS, (BATCH, LONGEST + 2))
    tokens[:, 0] = 1
    return tokens.masked_fill(positions == lengths + 1, 2).masked_fill(positions > lengths + 1, 0)


def seconds_of_step(
    clock: Callable[[], float], model: Seq2Seq, optimiser: torch.optim.Optimizer, source: Tensor, target: Tensor
) -> float:
    start = clock()
    with ba.record() as latents:
        nll = model(source, target)
    optimiser.zero_grad()
    ba.elbo(nll, latents).backward()
    optimiser.step()
    return clock() - start


def measure(repeats: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of each repeat."""
    torch.manual_seed(0)
    attentions = {**{name: objective_by_name(name) for name in OBJECTIVES}, "bam-wc": BAM}
    models = {name: Seq2Seq(WORDS, WORDS, attention) for name, attention in attentions.items()}
    optimisers = {name: torch.optim.Adam(model.parameters(), 3e-4) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    for repeat in range(repeats + 1):
        source, target = sentences(), sentences()
        for name, model in models.items():
            taken = seconds_of_step(clock, model, optimisers[name], source, target)
            if repeat > 0:  # the first is warm-up
                times[name].append(taken)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    times = measure(arguments.repeats, CLOCKS[arguments.clock])
    rows = []
    for name, taken in times.items():
        ratios = sorted(mine / soft for mine, soft in zip(taken, times["soft"], strict=True))
        row = {"objective": name, "seconds": statistics.median(taken), "ratio": statistics.median(ratios)}
        rows.append(row | {"lowest": ratios[0], "highest": ratios[-1], "limit": LIMITS.get(name)})
    print(f"{'objective':24}{'seconds':>9}{'ratio':>8}   lowest to highest")
    for row in rows:
        limit = (
            ""
            if row["limit"] is None
            else f"   at most {row['limit']}: {'yes' if row['ratio'] <= row['limit'] else 'NO'}"
        )
        spread = f"{row['lowest']:.2f} to {row['highest']:.2f}"
        print(f"{row['objective']:24}{row['seconds']:9.3f}{row['ratio']:8.2f}   {spread}{limit}")
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    load = os.getloadavg()[0]
    print(
        f"torch {torch.__version__}, {arguments.clock} clock, {arguments.threads} thread(s), {machine['cores']} cores, load {load:.1f}"
    )
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        settings = {
            "commit": commit(),
            "command": shlex.join(["python", *sys.argv]),
            "torch": torch.__version__,
            "threads": arguments.threads,
            "repeats": arguments.repeats,
            "clock": arguments.clock,
            "load": load,
        }
        arguments.output.write_text(json.dumps({**settings, **machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
