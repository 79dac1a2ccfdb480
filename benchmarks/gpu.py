"""Everything about the Triton kernels on one GPU, in ten minutes: `python benchmarks/gpu.py`, then send `gpu_benchmark.json` to us.

First the kernels are compared with `reference` in float64 on the GPU: output, KL, gradients. Then time and memory against
`F.scaled_dot_product_attention` of the same dtype, run in turn with it, as the median ratio: forward, training step, decoding, and
`ba.predict` against passes of the plain model. What fails is written down with its error, and the rest goes on.

`--dry-run` does the same on a processor with tiny sizes, to see that this script works: by `chunked`, or with TRITON_INTERPRET=1 by
the kernels in Triton's interpreter. Its times mean nothing.
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.experiments.runs.single import commit

TOLERANCE = 1e-3
"""Of the largest number of each result; sums of a thousand terms in float32 are two digits better."""
POSTERIORS: dict[str, Callable[[], ba.Posterior]] = {
    "weibull": lambda: ba.Weibull(10.0),
    "weibull-contextual": lambda: ba.Weibull(10.0, ba.ContextualGamma(0.5)),
    "lognormal": lambda: ba.LogNormal(0.5),
    "gaussian": lambda: ba.Gaussian(initial_sigma=0.5),
    "dirichlet": lambda: ba.Dirichlet(initial_sharpness=20.0),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Bench:
    """What is measured, where, and how large."""

    def __init__(self, dry: bool, minutes: float):
        self.device = torch.device("cpu" if dry else "cuda")
        self.backend: Any = "chunked" if dry and os.environ.get("TRITON_INTERPRET") != "1" else "triton"
        self.dry = dry
        self.turns = 1 if dry else 10
        self.end = time.monotonic() + 60.0 * minutes

    def random(self, *shape: int, dtype: torch.dtype, grad: bool = False) -> Tensor:
        return torch.randn(*shape, dtype=dtype, device=self.device, requires_grad=grad)

    def seconds(self, run: Callable[[], Any]) -> float:
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def require(self, posterior: ba.Posterior, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Raise where another backend would do the work, and be measured under this one's name."""
        choice = ba.kernels.explain(q, k, v, posterior, backend=self.backend)
        if choice.backend != self.backend:
            raise RuntimeError(f"{self.backend} would not be measured: {choice}")

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def against(self, ours: Callable[[], Any], peer: Callable[[], Any]) -> dict[str, float]:
        """Milliseconds of both, and the median ratio of runs in turn; two runs before them warm up and compile."""
        for run in (peer, ours, peer, ours):
            run()
        pairs = [(self.seconds(peer), self.seconds(ours)) for _ in range(self.turns)]
        of_peer, of_ours = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(ours / peer for peer, ours in pairs)
        return {"peer_ms": round(of_peer, 4), "ours_ms": round(of_ours, 4), "ratio": round(ratio, 3)}

    def extra_memory(self, run: Callable[[], Any]) -> float | None:
        """MiB at the peak, above what there was before; None on a processor."""
        if self.device.type != "cuda":
            return None
        self.wait()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        self.wait()
        return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def everything(posterior: ba.Posterior, tensors: tuple[Tensor, ...], backend: str, **masks: Any) -> dict[str, Tensor]:
    """Output, KL and gradients of a call, for one seed."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    posterior = copy.deepcopy(posterior).to(tensors[0])
    torch.manual_seed(3)
    with ba.record() as latents:
        output = ba.attend(*leaves, posterior, enable_gqa=True, backend=backend, **masks)  # pyright: ignore
    loss = (output * torch.linspace(-1.0, 1.0, output.shape[-1]).to(output)).sum() + latents.local_kl.sum()
    gradients = torch.autograd.grad(loss, leaves)
    return {"output": output, "kl": latents.local_kl, **dict(zip(("query", "key", "value"), gradients, strict=True))}


def correctness(bench: Bench) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The largest difference from `reference` in float64, as a share of the largest number, result by result."""
    length, features = (40, 16) if bench.dry else (300, 64)
    shapes = ((2, 4, length, features), (2, 2, length, features), (2, 2, length, features))
    torch.manual_seed(0)
    tensors = tuple(bench.random(*shape, dtype=torch.float32) for shape in shapes)
    masks: dict[str, dict[str, Any]] = {
        "causal": {"is_causal": True},
        "lengths": {"key_lengths": torch.tensor([length, length // 3], device=bench.device)},
        "dropout": {"dropout_p": 0.1},
    }
    for name, make in POSTERIORS.items():
        for kind, given in masks.items():

            def check(make: Any = make, given: Any = given) -> dict[str, Any]:
                posterior = make().bind(num_heads=4, head_dim=features).to(bench.device)
                bench.require(posterior, *tensors)
                ours = everything(posterior, tensors, bench.backend, **given)
                exact = everything(posterior, tuple(each.double() for each in tensors), "reference", **given)
                found = {
                    of: float((ours[of] - each).detach().abs().max() / each.detach().abs().max().clamp_min(1e-30))
                    for of, each in exact.items()
                }
                return {"differences": found, "agrees": all(value < TOLERANCE for value in found.values())}

            yield f"{name}, {kind}", check


def attention(bench: Bench) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Forward and step against sdpa, for each size and dtype, and the extra memory of a step."""
    sizes = [(1, 70)] if bench.dry else [(16, 128), (8, 512), (4, 2048), (1, 8192)]
    heads, features = (2, 16) if bench.dry else (16, 64)
    cases = [("weibull", *size, dtype) for dtype in DTYPES for size in sizes]
    cases += [(name, *sizes[-1 if bench.dry else 2], "bfloat16") for name in POSTERIORS if name != "weibull"]
    for name, batch, length, dtype in cases:

        def measure(name: str = name, batch: int = batch, length: int = length, dtype: str = dtype) -> dict[str, Any]:
            posterior = POSTERIORS[name]().bind(num_heads=heads, head_dim=features).to(bench.device)
            q, k, v = (bench.random(batch, heads, length, features, dtype=DTYPES[dtype], grad=True) for _ in range(3))
            bench.require(posterior, q, k, v)

            def ours() -> Tensor:
                return ba.attend(q, k, v, posterior, backend=bench.backend)

            def step() -> None:
                with ba.record() as latents:
                    output = ours()
                (output.float().sum() + latents.local_kl.sum()).backward()

            def peer() -> Tensor:
                return F.scaled_dot_product_attention(q, k, v)

            def peer_step() -> None:
                peer().float().sum().backward()

            with torch.no_grad(), ba.sampling():
                forward = bench.against(ours, peer)
            return {
                "forward": forward,
                "step": bench.against(step, peer_step),
                "extra_mib": {"peer": bench.extra_memory(peer_step), "ours": bench.extra_memory(step)},
            }

        yield f"{name}, {batch} x {length}, {dtype}", measure


def decoding(bench: Bench) -> Iterator[tuple[str, Callable[[], Any]]]:
    """One query against a cache, 32 heads with 8 of keys."""
    lengths, heads, features = ([300], 4, 16) if bench.dry else ([256, 1024, 4096, 16384], 32, 128)
    for name in ("weibull", "dirichlet"):
        for batch in (1, 8):
            for length in lengths:

                def measure(name: str = name, batch: int = batch, length: int = length) -> dict[str, float]:
                    posterior = POSTERIORS[name]().bind(num_heads=heads, head_dim=features).to(bench.device)
                    q = bench.random(batch, heads, 1, features, dtype=torch.bfloat16)
                    k, v = (bench.random(batch, heads // 4, length, features, dtype=torch.bfloat16) for _ in range(2))
                    bench.require(posterior, q, k, v)
                    with torch.no_grad(), ba.sampling():
                        return bench.against(
                            lambda: ba.attend(q, k, v, posterior, enable_gqa=True, backend=bench.backend),
                            lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
                        )

                yield f"{name}, {batch} x {length}", measure


def predicting(bench: Bench) -> Iterator[tuple[str, Callable[[], Any]]]:
    """`ba.predict` with 32 samples against one pass of the plain encoder, MiniLM's shape."""
    width, layers, samples = (16, 2, 3) if bench.dry else (384, 6, 32)
    for dtype in ("float32", "bfloat16"):
        for where in ("all", "last"):

            def measure(dtype: str = dtype, where: str = where) -> dict[str, float]:
                layer = nn.TransformerEncoderLayer(width, 2 if bench.dry else 12, 4 * width, batch_first=True)
                plain = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
                plain = plain.to(bench.device, DTYPES[dtype]).eval()
                model = ba.convert(copy.deepcopy(plain), ba.Weibull(10.0), where=where)  # pyright: ignore
                states = bench.random(16, 64, width, dtype=DTYPES[dtype])
                with torch.no_grad():
                    return bench.against(
                        lambda: ba.predict(model, states, samples, likelihood="values"), lambda: plain(states)
                    )

            yield f"{samples} samples, {where}, {dtype}", measure


PARTS = {"correctness": correctness, "attention": attention, "decoding": decoding, "predict": predicting}


def machine(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "commit": commit()}
    try:
        found["triton"] = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        found["triton"] = None
    if bench.device.type == "cuda":
        of_gpu = torch.cuda.get_device_properties(bench.device)
        found |= {
            "gpu": of_gpu.name,
            "capability": f"{of_gpu.major}.{of_gpu.minor}",
            "gpu_gib": round(of_gpu.total_memory / 2**30, 1),
            "cuda": torch.version.cuda,
        }
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on a processor: does the script work?")
    parser.add_argument("--minutes", type=float, default=10.0, help="after these nothing new is begun")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output", type=Path, default=Path("gpu_benchmark.json"))
    options = parser.parse_args(arguments)
    if not options.dry_run and not torch.cuda.is_available():
        print(
            f"There is no GPU here that torch {torch.__version__} can use (torch.cuda.is_available() is False): nothing was measured.\n"
            "Install torch for CUDA on a machine with an NVIDIA GPU, or try the script with --dry-run."
        )
        return 1
    bench = Bench(options.dry_run, options.minutes)
    report: dict[str, Any] = {
        "command": "python benchmarks/gpu.py " + " ".join(sys.argv[1:] if arguments is None else arguments),
        "dry_run": bench.dry,
        "backend": bench.backend,
        **machine(bench),
        "left_out": [],
    }
    failed: list[str] = []
    for part in options.parts:
        report[part] = {}
        for name, measure in PARTS[part](bench):
            if time.monotonic() > bench.end:
                report["left_out"].append(f"{part}: {name}")
                continue
            try:
                found = measure()
            except Exception as error:  # all that a GPU may refuse: the others are still of use
                found = {"error": f"{type(error).__name__}: {error}"[:2000]}
            if "error" in found or not found.get("agrees", True):
                failed.append(f"{part}: {name}")
            report[part][name] = found
            print(f"{part}: {name}: {json.dumps(found)}", flush=True)
        options.output.write_text(json.dumps(report, indent=2) + "\n")  # what there is, should the rest not end
    for name in failed:
        print(f"FAILED {name}")
    if report["left_out"]:
        print(
            f"{len(report['left_out'])} were left out after {options.minutes:g} minutes: --minutes {2 * options.minutes:g} does more."
        )
    print(f"Kept in {options.output}: please send it to us.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
