"""Generated cases of layers and whole models: a number decides library, architecture, posterior, dtype, mode, sizes and padding."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

import bayesattn as ba
from helpers.architectures import BY_NAME, VOCABULARY, outputs
from helpers.posterior_cases import MAX_LEN
from helpers.torchvision_stand_in import import_timm
from torture.attention_cases import MODES, POSTERIORS, Tally, expect, seed, tally_of

timm = import_timm()

GRAPH_LAYERS = {"GATConv": GATConv, "GATv2Conv": GATv2Conv, "TransformerConv": TransformerConv}
VISION = ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "beit_base_patch16_224", "eva02_tiny_patch14_224")
SUBJECTS = (
    *(("Hugging Face", name) for name in BY_NAME),
    *(("timm", name) for name in VISION),
    *(("PyTorch Geometric", name) for name in GRAPH_LAYERS),
    ("torch.nn", "TransformerEncoder"),
    ("torch.nn", "Transformer"),
    ("bayesattn.nn", "AdditiveAttention"),
    ("bayesattn.nn", "GraphAttention"),
)
DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class ModelCase:
    """One model and what it is run on, decided by its number."""

    number: int
    library: str
    name: str
    posterior: str
    mode: str
    dtype: torch.dtype
    batch: int
    length: int

    @classmethod
    def of(cls, number: int) -> ModelCase:
        """The case of this number."""
        pick = random.Random(f"model {number}")
        library, name = pick.choice(SUBJECTS)
        return cls(
            number=number,
            library=library,
            name=name,
            posterior=pick.choice(sorted(POSTERIORS)),
            mode=pick.choice(MODES),
            dtype=pick.choice(DTYPES),
            batch=pick.choice((1, 2, 3)),
            length=pick.randint(1, MAX_LEN),
        )


@dataclass
class Subject:
    """A Bayesian model, its inputs, other inputs that differ where nothing may be seen, and how to get its output."""

    model: nn.Module
    inputs: dict[str, Tensor]
    unseen_changed: dict[str, Tensor]
    output: Callable[[nn.Module, dict[str, Tensor]], Tensor]
    """What of the output may not depend on what is not seen."""
    examples: int
    """How many examples the KL has."""


def check(case: ModelCase) -> None:
    """Run the case; raise `Wrong` with what is not as it should be."""
    seed(case.number)
    subject = _MAKE[case.library](case)
    subject.model.to(case.dtype).train(case.mode == "train")
    if "thesis" in case.posterior and case.name in (*GRAPH_LAYERS, "GraphAttention"):
        _expect_refusal(case, subject)
        return
    output, latents = _run(case, subject, subject.inputs)
    expect(bool(output.isfinite().all()), "the output is not finite")
    kl = latents.local_kl
    expect(
        kl.shape == (subject.examples,), f"the KL has shape {tuple(kl.shape)}, there are {subject.examples} examples"
    )
    expect(bool(kl.isfinite().all()), "the KL is not finite")
    if case.mode == "train":
        total = output.double().sum() + kl.double().sum()
        parameters = [each for each in subject.model.parameters() if each.requires_grad]
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        finite = all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)
        expect(finite, "a gradient is not finite")
    if "dirichlet" in case.posterior and case.mode != "eval":
        return  # how many numbers a Gamma draw takes from torch's generator depends on the scores: all noise after it moves
    again, _ = _run(case, subject, subject.unseen_changed)
    expect(torch.equal(output, again), "what may not be seen changes the output")


def _expect_refusal(case: ModelCase, subject: Subject) -> None:
    """A posterior with a parameter for every position has no place on a graph."""
    try:
        _run(case, subject, subject.inputs)
    except ValueError as problem:
        expect("which a graph does not have" in str(problem), f"an unclear refusal: {problem}")
    else:
        expect(False, "a posterior that is tied to positions was not refused on a graph")


def _run(case: ModelCase, subject: Subject, inputs: dict[str, Tensor]) -> tuple[Tensor, ba.Latents]:
    seed(case.number)
    cast = {key: each.to(case.dtype) if each.is_floating_point() else each for key, each in inputs.items()}
    with torch.set_grad_enabled(case.mode == "train"), ba.record() as latents:
        if case.mode == "sampling":
            with ba.sampling():
                output = subject.output(subject.model, cast)
        else:
            output = subject.output(subject.model, cast)
    return output, latents


def _lengths_mask(case: ModelCase) -> Tensor:
    """[batch, length]: which positions are real."""
    return torch.arange(case.length) < torch.randint(1, case.length + 1, (case.batch, 1))


def _huggingface(case: ModelCase) -> Subject:
    architecture = BY_NAME[case.name]
    model = ba.convert(_built(case.name), POSTERIORS[case.posterior])
    take = outputs(architecture.kind)
    if architecture.kind in ("image", "clip"):
        inputs = {"pixel_values": torch.randn(case.batch, 3, 16, 16)}
        if architecture.kind == "clip":
            tokens = torch.randint(3, VOCABULARY - 1, (case.batch, case.length))
            tokens[:, -1] = VOCABULARY - 1  # CLIP looks at the place of the end
            inputs |= {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        return Subject(model, inputs, inputs, lambda m, i: take(m(**i)), case.batch)
    real = _lengths_mask(case)
    tokens = torch.randint(3, VOCABULARY, real.shape).masked_fill(~real, 0)
    inputs = {"input_ids": tokens, "attention_mask": real.long()}
    changed = {**inputs, "input_ids": tokens.masked_fill(~real, VOCABULARY - 3)}
    if architecture.kind == "encoder":
        return Subject(model, inputs, changed, lambda m, i: take(m(**i))[real], case.batch)
    seen = torch.randint(1, case.length + 1, ()).item()  # later tokens of a decoder are changed
    if architecture.kind == "seq2seq":
        target = torch.randint(3, VOCABULARY, (case.batch, case.length))
        inputs["decoder_input_ids"] = target
        changed["decoder_input_ids"] = torch.cat([target[:, :seen], (target[:, seen:] + 7) % VOCABULARY], 1)
        return Subject(model, inputs, changed, lambda m, i: take(m(**i, use_cache=False))[:, :seen], case.batch)
    later = torch.arange(case.length) >= seen
    changed["input_ids"] = torch.where(later & real, (tokens + 7) % VOCABULARY, changed["input_ids"])
    return Subject(model, inputs, changed, lambda m, i: take(m(**i, use_cache=False))[real & ~later], case.batch)


def _timm(case: ModelCase) -> Subject:
    model = ba.convert(_built(case.name), POSTERIORS[case.posterior])
    inputs = {"x": torch.randn(case.batch, 3, 16, 16)}
    return Subject(model, inputs, inputs, lambda m, i: m(**i), case.batch)


@cache
def _built_once(name: str) -> nn.Module:
    if name in BY_NAME:
        return BY_NAME[name].build()
    settings: dict[str, Any] = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    return timm.create_model(name, **settings, num_classes=5)  # pyright: ignore[reportAttributeAccessIssue]


def _built(name: str) -> nn.Module:
    return copy.deepcopy(_built_once(name))


def _graph(case: ModelCase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, edges, features that differ at one node, and the nodes that cannot see it."""
    features = torch.randn(case.length, 6)
    edges = torch.randint(0, case.length, (2, 3 * case.length))
    node = int(torch.randint(0, case.length, ()))
    other = features.clone()
    other[node] = 3.0
    unmoved = torch.ones(case.length, dtype=torch.bool)
    unmoved[edges[1, edges[0] == node]] = False
    unmoved[node] = False
    return features, edges, other, unmoved


def _geometric(case: ModelCase) -> Subject:
    layer = GRAPH_LAYERS[case.name](6, 4, heads=2)
    model = ba.convert(nn.ModuleList([layer]), POSTERIORS[case.posterior])
    features, edges, other, unmoved = _graph(case)
    return Subject(
        model,
        {"x": features},
        {"x": other},
        lambda m, i: m[0](i["x"], edges)[unmoved],
        1,  # pyright: ignore[reportIndexIssue]
    )


def _torch(case: ModelCase) -> Subject:
    real = _lengths_mask(case)
    x = torch.randn(case.batch, case.length, 8)
    changed = torch.where(real.unsqueeze(-1), x, x + 5)
    settings: dict[str, Any] = {"nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "batch_first": True}
    if case.name == "TransformerEncoder":
        layer = nn.TransformerEncoderLayer(8, **settings)
        model = ba.convert(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), POSTERIORS[case.posterior])
        return Subject(
            model, {"x": x}, {"x": changed}, lambda m, i: m(i["x"], src_key_padding_mask=~real)[real], case.batch
        )
    model = ba.convert(
        nn.Transformer(8, num_encoder_layers=1, num_decoder_layers=1, **settings), POSTERIORS[case.posterior]
    )
    target = torch.randn(case.batch, case.length, 8)
    seen = int(torch.randint(1, case.length + 1, ()))
    later = torch.cat([target[:, :seen], target[:, seen:] - 5], 1)
    causal = torch.ones(case.length, case.length, dtype=torch.bool).triu(1)

    def output(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        masks = {"src_key_padding_mask": ~real, "memory_key_padding_mask": ~real, "tgt_mask": causal}
        return model(inputs["x"], inputs["target"], **masks)[:, :seen]

    return Subject(model, {"x": x, "target": target}, {"x": changed, "target": later}, output, case.batch)


def _own(case: ModelCase) -> Subject:
    posterior = POSTERIORS[case.posterior]
    if case.name == "GraphAttention":
        features, edges, other, unmoved = _graph(case)
        layer: nn.Module = ba.nn.GraphAttention(6, 4, num_heads=2, posterior=posterior)
        return Subject(layer, {"x": features}, {"x": other}, lambda m, i: m(i["x"], edges)[unmoved], 1)
    real = torch.rand(case.batch, case.length) < 0.7  # perhaps none at all
    keys, queries = torch.randn(case.batch, case.length, 6), torch.randn(case.batch, 3, 5)
    return Subject(
        ba.nn.AdditiveAttention(5, 6, 4, posterior=posterior),
        {"keys": keys},
        {"keys": torch.where(real.unsqueeze(-1), keys, keys - 9)},
        lambda m, i: m(queries.to(i["keys"].dtype), i["keys"], attn_mask=real)[0],
        case.batch,
    )


_MAKE: dict[str, Callable[[ModelCase], Subject]] = {
    "Hugging Face": _huggingface,
    "timm": _timm,
    "PyTorch Geometric": _geometric,
    "torch.nn": _torch,
    "bayesattn.nn": _own,
}


def torture(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """Check all these cases."""
    return tally_of(cases, ModelCase.of, check, tick)
