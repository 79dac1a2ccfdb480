"""Bayesian attention against `F.scaled_dot_product_attention`, in ratios of one run.

    python benchmarks/attention.py [--parts sizes 4096 …] [--quick] [--output results/attention_benchmark.json]

Each part takes a few minutes and replaces its own figures in the file of results. The clock is the wall's, with two threads, on a machine
that does nothing else; `--processor-time` takes the time of the processor with one thread, which other programs disturb less. Every
method is timed in turn, again and again, and compared with sdpa in the same turn; the ratio given is the median over the turns. Extra
memory is the peak of a process of its own above what its inputs take. float32, 8 heads of 64, Weibull k = 10 with a Gamma prior and its
KL unless it says otherwise. What is said to be bfloat16 is compared with sdpa, or the plain model, in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.numerics.formulas import EULER_GAMMA

HEADS, FEATURES, THREADS, K = 8, 64, 2, 10.0
clock: Callable[[], float] = time.perf_counter
SHORT = 0.1
"""Seconds below which a run is done twice."""
SIZES = [(8, 128), (4, 512), (2, 1024), (1, 2048)]
LONG = [4096, 8192, 16384]
"""Lengths of one example, a part each: they take minutes. Methods that store n × n are left out: they take 1 GiB at 2048, 4 at 4096."""


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The peer: no noise, no KL."""
    return F.scaled_dot_product_attention(q, k, v), torch.zeros(())


def naive(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Weibull attention as it is written down: scores, noise, weights and KL, all of them stored."""
    scores = (q * FEATURES**-0.5) @ k.transpose(-2, -1)
    noise = torch.empty_like(scores).exponential_().clamp_min(torch.finfo(scores.dtype).tiny).log()
    weights = (scores + noise / K).softmax(-1)
    log_mean = scores.log_softmax(-1)
    constant = EULER_GAMMA / K + math.lgamma(1.0 + 1.0 / K) + math.log(K) - EULER_GAMMA - 1.0
    kl = log_mean.exp() - log_mean + constant  # to Gamma(1, 1)
    return weights @ v, kl.sum()


def bayesian(
    backend: Any, posterior: ba.Posterior | None = None, noise: Any = "philox"
) -> Callable[..., tuple[Tensor, Tensor]]:
    """`attend` with its KL on one backend."""
    drawn = ba.Weibull(K) if posterior is None else posterior

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        with ba.kernels.use(noise=noise), ba.record() as latents:
            output = ba.attend(q, k, v, drawn, backend=backend)
        return output, latents.local_kl.sum()

    return run


def methods(compiled: bool) -> dict[str, Callable[..., tuple[Tensor, Tensor]]]:
    found = {
        "sdpa": sdpa,
        "naive": naive,
        "native": bayesian("native"),
        "native, hash": bayesian("native", noise="hash"),
        "chunked": bayesian("chunked"),
        "chunked, hash": bayesian("chunked", noise="hash"),
    }
    if compiled:
        found["naive, compiled"] = torch.compile(naive)
    return found


def inputs(batch: int, length: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(batch, HEADS, length, FEATURES, dtype=dtype, requires_grad=True) for _ in range(3))


def one_pass(method: Callable[..., tuple[Tensor, Tensor]], tensors: tuple[Tensor, ...], backward: bool) -> float:
    """Seconds of a forward pass, or of a training step."""
    for tensor in tensors:
        tensor.grad = None
    start = clock()
    if backward:
        output, kl = method(*tensors)
        (output.sum() + kl).backward()
    else:
        # with gradients off the KL is computed all the same, because it is recorded
        with torch.no_grad():
            method(*tensors)
    return clock() - start


def interleaved(
    runs: dict[str, Callable[[], float]], repeats: int, peer: str, warm_up: bool = True
) -> dict[str, dict[str, float]]:
    """Median seconds, and median ratio to the peer of the same turn; a turn before them warms up.

    What is short is run twice in a turn, and the second time counts: none pays for what another left in the caches.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + warm_up):
        for name, run in runs.items():
            seconds = run()
            if seconds < SHORT:
                seconds = run()
            if turn >= warm_up:
                taken[name].append(seconds)
    return {
        name: {
            "seconds": statistics.median(times),
            "ratio": statistics.median(time / other for time, other in zip(times, taken[peer], strict=True)),
        }
        for name, times in taken.items()
    }


def sizes(quick: bool) -> list[dict[str, Any]]:
    """Forward, and training step, at the sizes where every method fits."""
    every = methods(compiled=not quick and clock is time.perf_counter)
    return [at_size(every, batch, length, 3 if quick else 7) for batch, length in (SIZES[:2] if quick else SIZES)]


def long(quick: bool, length: int) -> list[dict[str, Any]]:
    """The same for a long sequence, by the methods whose memory is linear in the length."""
    every = {name: method for name, method in methods(compiled=False).items() if name != "naive"}
    for method in every.values():
        one_pass(method, inputs(1, 128), True)
    return [at_size(every, 1, 512 if quick else length, max(1, 3 * 4096 // length), warm_up=length <= 4096)]


def at_size(
    every: dict[str, Callable[..., Any]], batch: int, length: int, repeats: int, warm_up: bool = True
) -> dict[str, Any]:
    tensors = inputs(batch, length)
    row: dict[str, Any] = {"batch": batch, "length": length, "load": load()}
    for kind in ("forward", "training step"):
        runs = {
            name: (lambda m=method, kind=kind: one_pass(m, tensors, kind != "forward"))
            for name, method in every.items()
        }
        row[kind] = interleaved(runs, repeats, "sdpa", warm_up)
        show(f"{batch} x {length}, {kind}", row[kind])
    row["extra MiB"] = {name: extra_memory(name, batch, length) for name in every if "compiled" not in name}
    print("   extra MiB: " + ", ".join(f"{name} {value:.0f}" for name, value in row["extra MiB"].items()), flush=True)
    return row


def in_bfloat16(quick: bool) -> list[dict[str, Any]]:
    """Forward, and training step, with everything in bfloat16, against sdpa in bfloat16."""
    rows = []
    every = {"sdpa": sdpa, "native": bayesian("native"), "native, hash": bayesian("native", noise="hash")}
    for batch, length in SIZES[:2] if quick else [*SIZES, (1, LONG[0])]:
        tensors = inputs(batch, length, torch.bfloat16)
        row: dict[str, Any] = {"batch": batch, "length": length, "load": load()}
        for kind in ("forward", "training step"):
            runs = {
                name: (lambda m=method, kind=kind, tensors=tensors: one_pass(m, tensors, kind != "forward"))
                for name, method in every.items()
            }
            row[kind] = interleaved(runs, 3 if quick else 7, "sdpa")
            show(f"{batch} x {length} in bfloat16, {kind}", row[kind])
        rows.append(row)
    return rows


def decoding(quick: bool) -> list[dict[str, Any]]:
    """One query of each head against a cache of keys, sampled, without a KL."""
    rows = []
    posterior = ba.Weibull(K)
    for dtype in (torch.float32, torch.bfloat16):
        for batch, keys in [(1, 256)] if quick else [(1, 256), (8, 256), (1, 1024), (1, 4096), (8, 4096), (1, 16384)]:
            torch.manual_seed(0)
            query = torch.randn(batch, HEADS, 1, FEATURES, dtype=dtype)
            key, value = (torch.randn(batch, HEADS, keys, FEATURES, dtype=dtype) for _ in range(2))

            def timed(run: Callable[[], Any]) -> float:
                start = clock()
                with torch.no_grad(), ba.sampling():
                    for _ in range(10):
                        run()
                return (clock() - start) / 10

            tensors = (query, key, value)
            runs: dict[str, Callable[[], float]] = {
                "sdpa": lambda tensors=tensors: timed(lambda: F.scaled_dot_product_attention(*tensors)),
                "native": lambda tensors=tensors: timed(lambda: ba.attend(*tensors, posterior)),
            }
            found = interleaved(runs, 3 if quick else 21, "sdpa")
            show(f"one query, {batch} x {keys} keys in {str(dtype).removeprefix('torch.')}", found)
            rows.append(
                {
                    "batch": batch,
                    "keys": keys,
                    "dtype": str(dtype).removeprefix("torch."),
                    "load": load(),
                    "time": found,
                }
            )
    return rows


def predictions(quick: bool) -> dict[str, Any]:
    """`predict` with 32 samples of a BERT of MiniLM's shape, 16 texts of 64 tokens, in passes of the plain model over them."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=1000, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )

    def model() -> nn.Module:
        torch.manual_seed(0)
        return transformers.BertForSequenceClassification(config).eval()

    samples = 4 if quick else 32
    ids = torch.randint(0, 1000, (16, 64))
    texts = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    plain, dropping = model(), model()
    every = ba.convert(model(), ba.Weibull(K))
    last = ba.convert(model(), ba.Weibull(K), where=lambda name, _: ".layer.4." in name or ".layer.5." in name)

    def one_plain_pass() -> float:
        with torch.no_grad():
            plain(**texts)  # the second one counts
            start = clock()
            plain(**texts)
        return clock() - start

    def predicted(model: nn.Module, **options: Any) -> float:
        start = clock()
        ba.predict(model, texts, samples, **options)
        return clock() - start

    runs: dict[str, Callable[[], float]] = {
        "plain": one_plain_pass,
        "all layers random": lambda: predicted(every),
        "all layers random, max_rows=1024": lambda: predicted(every, max_rows=1024),
        "last two of six": lambda: predicted(last),
        "MC dropout": lambda: predicted(dropping, dropout=True),
    }
    found = interleaved(runs, 1 if quick else 5, "plain")
    show(f"predict, {samples} samples, in passes of the plain model", found)
    return {"batch": 16, "length": 64, "samples": samples, "load": load(), "time": found}


def small(quick: bool) -> list[dict[str, Any]]:
    """Training steps of small problems by every backend: from which size each is worth its call."""
    rows = []
    for batch, length in (
        [(1, 16)] if quick else [(1, 16), (2, 32), (8, 32), (4, 64), (16, 64), (8, 128), (4, 256), (4, 512)]
    ):
        tensors = inputs(batch, length)
        backends = {backend: bayesian(backend) for backend in ("reference", "native", "chunked")}
        runs = {
            backend: (lambda m=method, tensors=tensors: one_pass(m, tensors, True))
            for backend, method in backends.items()
        }
        found = interleaved(runs, 3 if quick else 15, "reference")
        show(f"{batch} x {length}: {batch * HEADS * length**2} pairs, training step", found)
        rows.append({"batch": batch, "length": length, "pairs": batch * HEADS * length**2, "training step": found})
    return rows


def posteriors(quick: bool) -> dict[str, Any]:
    """The training step of every posterior, at 2 × 1024."""
    batch, length = (4, 256) if quick else (2, 1024)
    tensors = inputs(batch, length)
    chosen = {
        "softmax": ba.Softmax(),
        "weibull, fixed prior": ba.Weibull(K),
        "weibull, raw KL": ba.Weibull(K, kl_scores="raw"),
        "weibull, contextual prior": ba.Weibull(K, ba.ContextualGamma()),
        "lognormal, fixed prior": ba.LogNormal(0.1),
        "lognormal, contextual prior": ba.LogNormal(0.1, ba.ContextualLogNormal()),
        "gaussian": ba.Gaussian(),
        "dirichlet": ba.Dirichlet(),
    }
    runs = {"sdpa": lambda: one_pass(sdpa, tensors, True)}
    for name, posterior in chosen.items():
        method = bayesian("auto", posterior.bind(num_heads=HEADS, head_dim=FEATURES))
        runs[name] = lambda m=method: one_pass(m, tensors, True)
    found = interleaved(runs, 3 if quick else 7, "sdpa")
    show(f"posteriors, training step at {batch} x {length}", found)
    return {"batch": batch, "length": length, "training step": found}


def shared_samples(quick: bool) -> list[dict[str, Any]]:
    """S samples of one layer that share their scores, against S calls of sdpa."""
    rows = []
    for batch, length in [(4, 256)] if quick else [(8, 128), (4, 512), (2, 1024)]:
        q, k, v = (tensor.detach() for tensor in inputs(batch, length))
        scale = torch.full((batch, HEADS, length), 1.0 / K)
        for samples in (1, 4, 16) if quick else (1, 4, 16, 64):

            def sdpa_calls(count: int = samples, tensors: tuple[Tensor, ...] = (q, k, v)) -> float:
                start = clock()
                for _ in range(count):
                    F.scaled_dot_product_attention(*tensors)
                return clock() - start

            def kept_calls(count: int = samples, tensors: tuple[Tensor, ...] = (q, k, v)) -> float:
                """All samples are there at the end, as `native` leaves them: fresh memory for each."""
                start = clock()
                outputs = [F.scaled_dot_product_attention(*tensors) for _ in range(count)]
                seconds = clock() - start
                del outputs
                return seconds

            def native(
                noise: str, count: int = samples, tensors: tuple[Tensor, ...] = (q, k, v), scale: Tensor = scale
            ) -> float:
                start = clock()
                torch.ops.bayesattn.attention(
                    *tensors, None, None, None, torch.tensor([1]), scale, None, None, FEATURES**-0.5, False,
                    "log_exponential", noise, 0.0, "nothing", False, False, 0.0, count, "native",
                )  # fmt: skip
                return clock() - start

            runs: dict[str, Callable[[], float]] = {
                "sdpa": sdpa_calls,
                "sdpa, all outputs kept": kept_calls,
                "native": lambda native=native: native("philox"),
                "native, hash": lambda native=native: native("hash"),
            }
            found = interleaved(runs, 3 if quick else 7, "sdpa")
            show(f"{samples} samples at {batch} x {length}", found)
            rows.append({"batch": batch, "length": length, "samples": samples, "load": load(), "time": found})
    return rows


def encoder(quick: bool, autocast: bool = False) -> list[dict[str, Any]]:
    """A training step of a 6-layer encoder of MiniLM's shape, Weibull against deterministic; in bfloat16 where it is autocast."""
    rows = []
    for batch, length in [(4, 128)] if quick else [(16, 64), (16, 128), (4, 512)]:
        runs = {}
        for name in ("deterministic", "weibull"):
            torch.manual_seed(0)
            layer = nn.TransformerEncoderLayer(384, 12, 1536, dropout=0.0, activation="gelu", batch_first=True)
            model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
            if name == "weibull":
                ba.convert(model, ba.Weibull(K))
            x = torch.randn(batch, length, 384)

            def step(model: nn.Module = model, x: Tensor = x, name: str = name) -> float:
                model.zero_grad()
                start = clock()
                with ba.record() as latents, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = model(x).float().square().mean((1, 2))
                ba.elbo(loss, latents if name == "weibull" else None, kl_weight=1e-6).backward()
                return clock() - start

            runs[name] = step
        found = interleaved(runs, 2 if quick else 7, "deterministic")
        show(f"6-layer encoder at {batch} x {length}, training step{' in bfloat16' if autocast else ''}", found)
        rows.append({"batch": batch, "length": length, "load": load(), "training step": found})
    return rows


def nvib_key_bias(quick: bool) -> dict[str, Any]:
    """NVIB's training form is a bias of each key, which torch's kernel takes as it is."""
    q, k, v = (tensor.detach() for tensor in inputs(2, 1024))
    bias = torch.randn(2, 1, 1, 1024)

    def timed(mask: Tensor | None) -> float:
        start = clock()
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return clock() - start

    runs = {"sdpa": lambda: timed(None), "sdpa with NVIB's key bias": lambda: timed(bias)}
    found = interleaved(runs, 3 if quick else 11, "sdpa")
    show("NVIB, forward at 2 x 1024", found)
    return found


def extra_memory(method: str, batch: int, length: int) -> float:
    """Peak MiB of a training step above its inputs, in a process of its own."""
    command = [sys.executable, __file__, "--memory", method, str(batch), str(length)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure_memory(method: str, batch: int, length: int) -> float:
    tensors = inputs(batch, length)
    run = methods(compiled=False)[method]
    one_pass(run, inputs(1, 128), True)  # what is made once: threads, compiled kernel, workspaces
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    one_pass(run, tensors, True)
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def load() -> str:
    return Path("/proc/loadavg").read_text().split()[0]


def show(title: str, found: dict[str, dict[str, float]]) -> None:
    print(title)
    for name, values in found.items():
        print(f"   {name:30} {values['seconds'] * 1e3:10.1f} ms   {values['ratio']:6.2f} x", flush=True)


def plot(results: dict[str, Any], path: Path) -> None:
    """Time and memory of a training step against the length, and time of samples against their number, as far as there are figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    parts = [part for part in ("sizes", *map(str, LONG)) if part in results]
    parts = [
        part for part in parts if results[part]["machine"] == results[parts[0]]["machine"]
    ]  # one plot, one machine
    every = [row for part in parts for row in results[part]["figures"]]
    samples = results["samples"]["figures"] if "samples" in results else []
    panels = [panel for panel, rows in ((_plot_time, every), (_plot_memory, every), (_plot_samples, samples)) if rows]
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        panel(axis, samples if panel is _plot_samples else every)
        axis.set_xscale("log", base=2)
        axis.grid(True, alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _plot_time(axis: Any, every: list[dict[str, Any]]) -> None:
    for name in every[0]["training step"]:
        rows = [row for row in every if name in row["training step"]]
        pairs = [row["batch"] * HEADS * row["length"] ** 2 for row in rows]
        taken = [row["training step"][name]["seconds"] * 1e9 / count for row, count in zip(rows, pairs, strict=True)]
        axis.plot([row["length"] for row in rows], taken, marker="o", label=name)
    axis.set(title="Training step: ns for each pair of query and key", xlabel="length", yscale="log")


def _plot_memory(axis: Any, every: list[dict[str, Any]]) -> None:
    for name in every[0]["extra MiB"]:
        rows = [row for row in every if name in row["extra MiB"]]
        taken = [max(row["extra MiB"][name], 1.0) / row["batch"] for row in rows]
        axis.plot([row["length"] for row in rows], taken, marker="o", label=name)
    axis.set(title="Training step: extra MiB for each example", xlabel="length", yscale="log")


def _plot_samples(axis: Any, rows: list[dict[str, Any]]) -> None:
    for batch, length in dict.fromkeys((row["batch"], row["length"]) for row in rows):
        here = [row for row in rows if (row["batch"], row["length"]) == (batch, length)]
        for name, style in (("native", "-"), ("native, hash", "--")):
            ratios = [row["time"][name]["ratio"] for row in here]
            axis.plot([row["samples"] for row in here], ratios, style, marker="o", label=f"{batch} × {length}, {name}")
    axis.axhline(1.0, color="grey", linewidth=1)
    axis.set(title="S samples of one layer: time, in S calls of sdpa", xlabel="samples S", ylim=(0, None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="a few small sizes, to see that it runs")
    parser.add_argument(
        "--output", type=Path, default=None, help="default: results/attention_benchmark.json; with --quick, nowhere"
    )
    parser.add_argument("--processor-time", action="store_true", help="of one thread, for a machine that is busy")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1 if arguments.processor_time else THREADS)
    if arguments.processor_time:
        global clock
        clock = time.process_time
    if arguments.memory:
        method, batch, length = arguments.memory
        print(measure_memory(method, int(batch), int(length)))
        return
    output = arguments.output or (None if arguments.quick else Path("results/attention_benchmark.json"))
    results: dict[str, Any] = json.loads(output.read_text()) if output is not None and output.exists() else {}
    before_parts = results.pop("machine", None)  # of all parts, in a file of before each had its own
    for figures in results.values():
        figures.setdefault("machine", before_parts)
    for part in arguments.parts:
        start, before = time.perf_counter(), load()
        figures = PARTS[part](arguments.quick)
        remark, option = (", processor time", " --processor-time") if arguments.processor_time else ("", "")
        results[part + remark] = {
            "command": f"python benchmarks/attention.py --parts {part}{option}",
            "commit": commit(),
            "machine": {
                "cpu": _cpu(),
                "cores": os.cpu_count(),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            },
            "load": [before, load()],
            "minutes": round((time.perf_counter() - start) / 60, 2),
            "figures": figures,
        }
        if output is not None:  # after every part: a later one that is cut short costs nothing
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(results, indent=1) + "\n")
    if output is not None:
        plot(results, output.with_suffix(".png"))


PARTS: dict[str, Callable[[bool], Any]] = {
    "sizes": sizes,
    **{str(length): partial(long, length=length) for length in LONG},
    "bfloat16": in_bfloat16,
    "decoding": decoding,
    "predict": predictions,
    "small": small,
    "posteriors": posteriors,
    "samples": shared_samples,
    "encoder": encoder,
    "encoder-bfloat16": partial(encoder, autocast=True),
    "nvib": nvib_key_bias,
}


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
