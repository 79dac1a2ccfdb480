"""What Bayesian attention costs on models and machines that we do not have: arithmetic from shapes, data sheets and measured ratios.

    python benchmarks/scale.py [--output docs/scale.md]

A roofline: a step takes as long as its matrix products at a share of the peak, or as long as its bytes take to be read, whichever is
longer; the noise runs on the vector units and is added, as if nothing overlapped. Nothing here was run on a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARE_OF_PEAK = 0.4
"""What large trainings reach of the peak of matrix products, and what we allow the vector units."""
BYTES = 2
"""Of a weight and of a cached key or value: bfloat16."""
TRAINED_BYTES = 16
"""Of a trained parameter: bfloat16 weight and gradient, float32 copy and AdamW's two moments."""
OPERATIONS = {"philox": 40, "hash": 20}
"""32-bit operations of one draw: ten rounds of Philox make four numbers (100 / 4), the hash has 7; then two logarithms."""
DRAWS = 3
"""Times that a pair's noise is drawn in a step: forward, and again in both backward kernels."""
LENGTHS = (512, 4096, 32768)
SAMPLES = (1, 4, 16, 64)
CONTEXT = 2048


@dataclass(frozen=True)
class Model:
    """The shape of a transformer decoder."""

    name: str
    layers: int
    width: int
    heads: int
    key_heads: int
    feedforward: int
    vocabulary: int
    gated: bool = True
    tied: bool = False

    @property
    def in_layers(self) -> int:
        """Parameters of the matrices of all layers."""
        head = self.width // self.heads
        attention = self.width * (2 * self.width + 2 * head * self.key_heads)
        return self.layers * (attention + (3 if self.gated else 2) * self.width * self.feedforward)

    @property
    def parameters(self) -> int:
        """With the embedding, and the output layer where it is another matrix."""
        return self.in_layers + (1 if self.tied else 2) * self.vocabulary * self.width

    @property
    def cache_of_token(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.layers * self.key_heads * (self.width // self.heads) * BYTES

    def products(self, length: int) -> float:
        """Floating-point operations of the matrix products of a training step, for each token of causal texts of this length."""
        return 6.0 * (self.in_layers + self.vocabulary * self.width) + 6.0 * self.layers * self.width * length

    def pairs(self, length: int) -> float:
        """Pairs of query and key in all heads and layers, for each token."""
        return self.layers * self.heads * length / 2.0


@dataclass(frozen=True)
class Hardware:
    """Peaks of a GPU's data sheet."""

    name: str
    products: float
    """Dense bfloat16 operations a second, of matrix products."""
    vector: float
    """32-bit operations a second."""
    bandwidth: float
    """Bytes a second."""
    memory: float
    """Bytes."""


MODELS = (
    Model("0.1 B (GPT-2)", 12, 768, 12, 12, 3072, 50257, gated=False, tied=True),
    Model("1 B (Llama 3.2)", 16, 2048, 32, 8, 8192, 128256, tied=True),
    Model("7 B (Llama 2)", 32, 4096, 32, 32, 11008, 32000),
    Model("70 B (Llama 2)", 80, 8192, 64, 8, 28672, 32000),
)
MACHINES = (
    Hardware("RTX 4090", 165e12, 82.6e12, 1.01e12, 24e9),
    Hardware("A100 80 GB", 312e12, 19.5e12, 2.04e12, 80e9),
    Hardware("H100 SXM", 989e12, 67e12, 3.35e12, 80e9),
)


def noise_share(model: Model, machine: Hardware, length: int, generator: str = "philox") -> float:
    """Time of the noise of a training step, as a share of that of its matrix products."""
    noise = model.pairs(length) * DRAWS * OPERATIONS[generator] / machine.vector
    return noise / (model.products(length) / machine.products)


def training_tokens(model: Model, machine: Hardware, length: int, noisy: bool) -> float:
    """Tokens that one GPU trains in a second, if the model fits."""
    seconds = model.products(length) / (SHARE_OF_PEAK * machine.products)
    return 1.0 / (seconds * (1.0 + (noise_share(model, machine, length) if noisy else 0.0)))


def gpus_to_train(model: Model, machine: Hardware) -> int:
    """GPUs over which FSDP2 must shard weights, gradients and optimiser, with a fifth of the memory left to activations."""
    return max(1, math.ceil(model.parameters * TRAINED_BYTES / (0.8 * machine.memory)))


def decoding_seconds(model: Model, machine: Hardware, samples: int, context: int = CONTEXT) -> float:
    """Time of one new token of one text in so many samples, folded: weights are read once, each sample's cache for itself."""
    read = model.parameters * BYTES + samples * context * model.cache_of_token
    products = samples * (
        2.0 * (model.in_layers + model.vocabulary * model.width) + 4.0 * model.layers * model.width * context
    )
    return max(read / machine.bandwidth, products / (SHARE_OF_PEAK * machine.products))


def samples_as_dear_as_weights(model: Model, context: int = CONTEXT) -> float:
    """Samples at which reading their caches takes as long as reading the weights."""
    return model.parameters * BYTES / (context * model.cache_of_token)


def length_of_equal_noise(model: Model, machine: Hardware, share: float = 1.0) -> float | None:
    """Length of the texts at which the noise takes this share of the time of the matrix products; None if it never does."""
    of_pair = model.layers * model.heads / 2.0 * DRAWS * OPERATIONS["philox"] / machine.vector
    of_length = 6.0 * model.layers * model.width / machine.products
    fixed = 6.0 * (model.in_layers + model.vocabulary * model.width) / machine.products
    gain = of_pair - share * of_length
    return share * fixed / gain if gain > 0 else None


def page() -> str:
    """docs/scale.md."""
    ratios = json.loads((ROOT / "results/attention_benchmark.json").read_text())["posteriors"]
    measured = ratios["figures"]["training step"]
    return "\n".join([*_front(ratios["commit"], measured), *_training(), *_noise(), *_serving(), *_extras()]) + "\n"


def _front(commit: str, measured: dict[str, dict[str, float]]) -> list[str]:
    shown = {
        "weibull, fixed prior": "Weibull",
        "lognormal, fixed prior": "lognormal",
        "gaussian": "Gaussian",
        "dirichlet": "Dirichlet",
    }
    said = ", ".join(f"{words} {measured[name]['ratio']:.2f}" for name, words in shown.items())
    return [
        "# On paper: larger models, larger machines",
        "",
        "Written by `python benchmarks/scale.py`: do not edit. **Nothing on this page was run on a GPU.** It is arithmetic: shapes of",
        f"published models, peaks of data sheets, {SHARE_OF_PEAK:.0%} of the peak for matrix products and vector units alike, and no",
        "overlap of the two.",
        "`benchmarks/attention.py` measures; what it measured on our processor (training step of attention against",
        f"`F.scaled_dot_product_attention`, 2 × 1,024 tokens, commit `{commit}`): {said}.",
        "",
        "Sharding over processes (FSDP2, `fully_shard`) was tried with two processes on one machine: every posterior's gradients are",
        "those of one process (`tests/integration/test_distributed.py`).",
        "",
    ]


def _training() -> list[str]:
    header = (
        "| model | parameters | " + " | ".join(f"{m.name}: GPUs, tokens/s of one, with noise" for m in MACHINES) + " |"
    )
    rows = []
    for model in MODELS:
        cells = [
            f"{gpus_to_train(model, machine)}, {_round(training_tokens(model, machine, 4096, False))}, "
            f"{_round(training_tokens(model, machine, 4096, True))}"
            for machine in MACHINES
        ]
        rows.append(f"| {model.name} | {model.parameters / 1e9:.2f} B | " + " | ".join(cells) + " |")
    return [
        "## Fine-tuning all weights",
        "",
        f"Texts of 4,096 tokens; {TRAINED_BYTES} bytes a parameter; a posterior's own parameters are some thousands and do not count.",
        "GPUs: how many FSDP2 needs to hold the state.",
        "",
        header,
        "| --- | ---: |" + " ---: |" * len(MACHINES),
        *rows,
        "",
    ]


def _noise() -> list[str]:
    rows = []
    for machine in MACHINES:
        for model in MODELS:
            shares = [f"{noise_share(model, machine, length):.0%}" for length in LENGTHS]
            hashed = f"{noise_share(model, machine, LENGTHS[-1], 'hash'):.0%}"
            equal = length_of_equal_noise(model, machine)
            rows.append(
                f"| {machine.name} | {model.name} | {' | '.join(shares)} | {hashed} | "
                f"{'never' if equal is None else _round(equal)} |"
            )
    return [
        "## Where the noise becomes the bottleneck",
        "",
        "Time of the noise as a share of the matrix products', and the length at which both are equal. Noise is drawn for each pair of",
        "query and key, by the vector units, which are far slower than the matrix units: that decides, not the model's size. The KL needs",
        "a few additions for each pair beside the 40 operations of a draw, and never decides.",
        "",
        "| GPU | model | "
        + " | ".join(f"{length:,} tokens" for length in LENGTHS)
        + f' | {LENGTHS[-1]:,}, `noise="hash"` | equal at |',
        "| --- | --- |" + " ---: |" * (len(LENGTHS) + 2),
        *rows,
        "",
    ]


def _serving() -> list[str]:
    rows = []
    for model in MODELS:
        for machine in MACHINES:
            if model.parameters * BYTES > 0.9 * machine.memory:
                continue
            one = decoding_seconds(model, machine, 1)
            folded = [f"{decoding_seconds(model, machine, samples) / one:.1f}" for samples in SAMPLES[1:]]
            rows.append(f"| {model.name} | {machine.name} | {1000 * one:.2f} | {' | '.join(folded)} |")
    limits = ", ".join(f"{model.name}: {_round(samples_as_dear_as_weights(model))}" for model in MODELS)
    return [
        "## Serving: samples of one text",
        "",
        f"One new token after {CONTEXT:,}, S samples folded into one pass, each with a cache of its own. Weights are read once for all, so",
        "samples cost little until their caches are as large as the weights. That is at this many samples:",
        f"{limits}. A GPU that cannot hold the weights is left out; 70 B needs two.",
        "",
        "| model | GPU | ms a token, S = 1 | " + " | ".join(f"S = {samples}" for samples in SAMPLES[1:]) + " |",
        "| --- | --- | ---: |" + " ---: |" * (len(SAMPLES) - 1),
        *rows,
        "",
    ]


def _extras() -> list[str]:
    rows = []
    for model in MODELS:
        values = model.width // model.heads * model.key_heads
        low_rank = 8 * model.layers * (2 * model.width + model.width + values)
        rows.append(
            f"| {model.name} | {model.parameters * BYTES / 1e9:.1f} GB | {_megabytes(low_rank * BYTES)} | "
            f"{_megabytes(model.width**2 * 4)} | {_megabytes(1024**2 * 4)} |"
        )
    return [
        "## What else is kept",
        "",
        "A member of an ensemble is a whole model; one by LoRA (rank 8, queries and values) is not; distances keep a covariance of the",
        "features in float32, a Gaussian process head (1,024 random features) its own. Energy, entropy and temperature keep nothing. A",
        "score of one pass costs no more than that pass: of all that this library has, only samples and members multiply the price.",
        "",
        "| model | a member | a member by LoRA | distance | process head |",
        "| --- | ---: | ---: | ---: | ---: |",
        *rows,
    ]


def _round(value: float) -> str:
    """Two digits: no more are meant."""
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def _megabytes(size: float) -> str:
    return f"{_round(size / 1e6)} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs/scale.md")
    output = parser.parse_args().output
    output.write_text(page())
    print(f"Written: {output}")


if __name__ == "__main__":
    main()
