"""`ba.generate` against plain generation of one text, on SmolLM2's shape with random weights: `python benchmarks/generation.py`.

Each figure is a ratio of medians of runs that alternate in one process, by the processor's time of one thread, so that it can be
measured on a machine that is busy. `folded` is plain generation of as many copies of the text: what samples cost without the noise.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import bayesattn as ba
from bayesattn.experiments.runs.single import commit

LIMIT = 5.0
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
}
"""SmolLM2-135M's."""


def seconds_of(run: Callable[[], Any]) -> float:
    start = time.process_time()
    with torch.no_grad():
        run()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument(
        "--where", nargs="+", default=["all", "last"], help="the layers that are random: all, or the last one"
    )
    parser.add_argument("--output", type=Path, default=Path("results/generation_benchmark.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "command": "python " + " ".join(sys.argv),
        "commit": commit(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": 1,
        "limit": LIMIT,
        "load_before": os.getloadavg()[0],
        "cases": {},
    }
    torch.manual_seed(0)
    plain: Any = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SHAPE | {"num_hidden_layers": options.layers})
    )
    ids = torch.randint(SHAPE["vocab_size"], (1, options.prompt))
    lengths = {"max_new_tokens": options.new, "pad_token_id": 0}
    for name in options.dtypes:
        plain = plain.eval().to(getattr(torch, name))
        runs: dict[str, Callable[[], Any]] = {
            "plain": lambda plain=plain: plain.generate(input_ids=ids, do_sample=False, **lengths),
            "folded": lambda plain=plain: plain.generate(
                input_ids=ids.repeat(options.samples, 1), do_sample=False, **lengths
            ),
        }
        for where in options.where:
            model = ba.convert(copy.deepcopy(plain), ba.Weibull(k=10.0), where=where)
            runs[where] = lambda model=model: ba.generate(model, input_ids=ids, samples=options.samples, **lengths)
        for run in runs.values():
            run()
        times = {of: [] for of in runs}
        for _ in range(options.runs):
            for of, run in runs.items():
                times[of].append(seconds_of(run))
        medians = {of: statistics.median(each) for of, each in times.items()}
        ratios = {of: round(median / medians["plain"], 2) for of, median in medians.items() if of != "plain"}
        report["cases"][name] = {"plain_seconds": round(medians["plain"], 2), "ratios": ratios}
        print(f"{name}: plain {medians['plain']:.2f} s; in passes of it: {ratios}", flush=True)
    report["load_after"] = os.getloadavg()[0]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    print(f"Kept in {options.output}.")


if __name__ == "__main__":
    main()
