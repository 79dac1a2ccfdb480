"""all-MiniLM-L6-v2 made NVIB without training: how far its embeddings move, and how much attention goes to the prior, as τ_α falls.

    python examples/nvib_minilm.py --results results --output docs/images

Needs the extras hf and experiments, and WikiText-2 (see docs/experiments.md).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import bayesattn as ba
from bayesattn.experiments.data.pretrained import minilm
from bayesattn.experiments.data.wikitext2 import load_sentences
from bayesattn.experiments.runs.single import commit

matplotlib.use("Agg")

from matplotlib import pyplot

TAUS = (10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    folder = minilm()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.BertModel.from_pretrained(folder).eval()
    sentences = [text for text in load_sentences()[1] if 40 < len(text) < 200][: options.sentences]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")
    before, _ = measure(model, inputs)
    ba.nvib.identity(ba.convert(model, ba.nvib.NVIB(alpha="quadratic")), [inputs])  # one pass: the priors of all layers
    points = []
    for tau_alpha in TAUS:
        ba.nvib.identity(model, tau_alpha=tau_alpha)
        embeddings, weights = measure(model, inputs)
        real = inputs["attention_mask"].bool()
        points.append(
            {
                "tau_alpha": tau_alpha,
                "largest_difference": (embeddings - before).abs().max().item(),
                "cosine": F.cosine_similarity(embeddings, before).mean().item(),
                "prior_share_by_layer": [
                    layer[..., 0].mean(1)[real].mean().item() for layer in weights
                ],  # mean over heads, then over real queries
            }
        )
        print(
            f"τ_α {tau_alpha:5.1f}: largest difference {points[-1]['largest_difference']:.2e}, cosine {points[-1]['cosine']:.4f}"
        )
    data = {
        "command": f"python examples/nvib_minilm.py --sentences {options.sentences}",
        "commit": commit(),
        "sentences": len(sentences),
        "points": points,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "nvib_minilm_figure.json").write_text(json.dumps(data, indent=1) + "\n")
    draw(points, options.output / "nvib-minilm.png")


@torch.no_grad()
def measure(model: transformers.BertModel, inputs: transformers.BatchEncoding) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The sentences' embeddings (normalised means over tokens), and the attention weights of every layer."""
    output = model(**inputs, output_attentions=True)
    real = inputs["attention_mask"].unsqueeze(-1)
    mean = (output.last_hidden_state * real).sum(1) / real.sum(1)
    return F.normalize(mean, dim=-1), output.attentions


def draw(points: list[dict], path: Path) -> None:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    taus = [point["tau_alpha"] for point in points]
    for layer in range(len(points[0]["prior_share_by_layer"])):
        left.plot(
            taus,
            [point["prior_share_by_layer"][layer] for point in points],
            marker="o",
            markersize=3,
            label=f"layer {layer + 1}",
        )
    left.set(xlabel="τ_α", ylabel="share of attention that the prior takes", title="Attention mass dropped")
    left.invert_xaxis()
    left.legend(frameon=False)
    right.plot(taus, [point["cosine"] for point in points], marker="o", markersize=3)
    right.set(xlabel="τ_α", ylabel="cosine to the original embedding", title="Embeddings of all-MiniLM-L6-v2")
    right.invert_xaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
