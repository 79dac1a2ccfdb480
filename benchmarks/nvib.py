"""A training step with NVIB against the same transformer without it, at 512 tokens: `python benchmarks/nvib.py`.

Each figure is a ratio of medians of steps that alternate in one process, so what else the machine does weighs on both;
`--processor-time` takes the time of the processor with one thread, which other programs disturb less. A step is forward, loss with the
KL, backward, Adam. No dropout: torch's own attention then runs on its fused kernel, which is its best.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import bayesattn as ba
from bayesattn.experiments.runs.single import commit

LIMIT = 1.3
clock: Callable[[], float] = time.perf_counter


def encoder_decoder(dim: int) -> nn.Module:
    """One layer of each, the size of the published autoencoder."""
    return nn.Transformer(dim, max(dim // 64, 1), 1, 1, 4 * dim, dropout=0.0, batch_first=True)


def encoder(dim: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(dim, max(dim // 64, 1), 4 * dim, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def step_of(model: nn.Module, inputs: tuple[torch.Tensor, ...], bayesian: bool) -> Callable[[], float]:
    """A function that does one training step and returns its seconds."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-4)

    def step() -> float:
        start = clock()
        optimiser.zero_grad()
        if bayesian:
            with ba.record() as latents:
                output = model(*inputs)
            ba.elbo(output.square().mean((1, 2)), latents).backward()
        else:
            model(*inputs).square().mean().backward()
        optimiser.step()
        return clock() - start

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=40.0, help="for each of the cases")
    parser.add_argument("--output", type=Path, default=Path("results/nvib_benchmark.json"))
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    if options.processor_time:
        global clock
        clock = time.process_time
        torch.set_num_threads(1)
    report = {
        "command": "python " + " ".join(sys.argv),
        "commit": commit(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "clock": "processor" if options.processor_time else "wall",
        "limit": LIMIT,
        "load_before": os.getloadavg()[0],
        "cases": {},
    }
    torch.manual_seed(0)
    x = torch.randn(options.batch, options.tokens, options.dim)
    cases = {
        "encoder-decoder, where='cross'": (encoder_decoder, (x, x), "cross"),
        "encoder, where='self'": (encoder, (x,), "self"),
        "encoder-decoder, where='all'": (encoder_decoder, (x, x), "all"),
    }
    print(
        f"{options.batch} x {options.tokens} tokens, dim {options.dim}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    for name, (build, inputs, where) in cases.items():
        plain = step_of(build(options.dim), inputs, bayesian=False)
        nvib = step_of(ba.convert(build(options.dim), ba.nvib.NVIB(), where=where), inputs, bayesian=True)
        plain(), nvib()
        times: list[tuple[float, float]] = []
        end = time.perf_counter() + options.seconds
        while time.perf_counter() < end or len(times) < 5:
            times.append((plain(), nvib()))
        before, after = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = after / before
        report["cases"][name] = {
            "plain_milliseconds": round(1e3 * before, 1),
            "nvib_milliseconds": round(1e3 * after, 1),
            "ratio": round(ratio, 3),
            "steps": len(times),
        }
        verdict = "within" if ratio <= LIMIT else "above"
        print(
            f"{name:32} plain {1e3 * before:7.1f} ms, NVIB {1e3 * after:7.1f} ms, ratio {ratio:.3f} ({verdict} {LIMIT}), {len(times)} steps"
        )
    report["load_after"] = os.getloadavg()[0]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    print(f"Kept in {options.output}.")


if __name__ == "__main__":
    main()
