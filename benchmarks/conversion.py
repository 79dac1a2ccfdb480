"""What conversion costs: converted models against the same model with its own sdpa attention, as ratios of times.

    python benchmarks/conversion.py [--repeats 15] [--threads 2] [--output results/conversion_benchmark.json]

Random weights; the time does not depend on them. The variants are timed in turn, repeat by repeat, so that a change of the
machine's load hits all alike; the ratio is the median over repeats of (variant / own sdpa of the same repeat).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import bayesattn as ba

SIZES = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


def encoder() -> tuple[nn.Module, dict[str, Tensor]]:
    """BERT of MiniLM's size, 8 padded texts of 128 tokens."""
    mask = torch.ones(8, 128, dtype=torch.long)
    mask[4:, 96:] = 0
    inputs = {"input_ids": torch.randint(0, 1000, (8, 128)), "attention_mask": mask}
    return transformers.BertModel(transformers.BertConfig(vocab_size=1000, **SIZES)), inputs


def decoder() -> tuple[nn.Module, dict[str, Tensor]]:
    """Llama of the same size with 4 key heads, 4 texts of 256 tokens."""
    config = transformers.LlamaConfig(vocab_size=1000, num_key_value_heads=4, **SIZES)
    return transformers.LlamaModel(config), {"input_ids": torch.randint(0, 1000, (4, 256))}


def image_encoder() -> tuple[nn.Module, dict[str, Tensor]]:
    """ViT of the same size, 4 images of 224 pixels: 197 tokens."""
    return transformers.ViTModel(transformers.ViTConfig(**SIZES)), {"pixel_values": torch.randn(4, 3, 224, 224)}


MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, Tensor]]]] = {
    "encoder": encoder,
    "decoder": decoder,
    "image encoder": image_encoder,
}
POSTERIORS: dict[str, ba.Posterior | None] = {
    "own sdpa": None,
    "Softmax": ba.Softmax(),
    "Weibull": ba.Weibull(k=10.0),
    "Weibull, contextual prior": ba.Weibull(k=10.0, prior=ba.ContextualGamma()),
}


def predict_once(model: nn.Module, inputs: dict[str, Tensor]) -> None:
    with torch.no_grad(), ba.sampling():
        model(**inputs, use_cache=False) if "input_ids" in inputs else model(**inputs)


def train_once(model: nn.Module, inputs: dict[str, Tensor], is_bayesian: bool) -> None:
    model.zero_grad()
    with ba.record() as latents:
        output = model(**inputs, use_cache=False) if "input_ids" in inputs else model(**inputs)
    nll = output.last_hidden_state.square().mean((1, 2))
    ba.elbo(nll, latents if is_bayesian else None, kl_weight=1e-4).loss.backward()


def seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(build: Callable[[], tuple[nn.Module, dict[str, Tensor]]], repeats: int) -> dict[str, Any]:
    variants: dict[str, nn.Module] = {}
    inputs: dict[str, Tensor] = {}
    for name, posterior in POSTERIORS.items():
        torch.manual_seed(0)
        model, inputs = build()
        variants[name] = model if posterior is None else ba.convert(model, posterior)
    results: dict[str, Any] = {}
    for mode in ("predict", "train"):
        times: dict[str, list[float]] = {name: [] for name in variants}
        for repeat in range(repeats + 2):  # two to warm up
            for name, model in variants.items():
                model.train(mode == "train")
                if mode == "train":
                    taken = seconds(
                        lambda model=model, name=name: train_once(model, inputs, POSTERIORS[name] is not None)
                    )
                else:
                    taken = seconds(lambda model=model: predict_once(model, inputs))
                if repeat >= 2:
                    times[name].append(taken)
        own = times["own sdpa"]
        results[mode] = {
            name: {
                "milliseconds": round(1000 * statistics.median(taken), 1),
                "ratio": round(statistics.median(t / o for t, o in zip(taken, own, strict=True)), 3),
            }
            for name, taken in times.items()
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("results/conversion_benchmark.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    load_before = os.getloadavg()[0]
    models = {}
    for name, build in MODELS.items():
        models[name] = measure(build, arguments.repeats)
        print(f"{name}: {build.__doc__}")
        for mode, rows in models[name].items():
            for variant, row in rows.items():
                print(f"  {mode:8} {variant:26} {row['milliseconds']:8.1f} ms   × {row['ratio']:.2f}")
    report = {
        "repeats": arguments.repeats,
        "threads": torch.get_num_threads(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "models": models,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
