"""Longformer's attention as attention with a mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

SIZES: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
    "attention_window": [4, 8],
}


def longformer(**more: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.LongformerModel(transformers.LongformerConfig(**SIZES, **more)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.copy_(torch.randn_like(weight) * weight.shape[1] ** -0.5 * 2)
    return model


def inputs(length: int) -> dict[str, Tensor]:
    """Three texts: one with two global tokens, one padded with one, one without any."""
    torch.manual_seed(1)
    mask = torch.ones(3, length, dtype=torch.long)
    mask[1, length // 2 :] = 0
    is_global = torch.zeros_like(mask)
    is_global[0, [0, length - 1]] = 1
    is_global[1, 1] = 1
    return {
        "input_ids": torch.randint(3, 31, (3, length)),
        "attention_mask": mask,
        "global_attention_mask": is_global,
    }


@pytest.mark.parametrize("length", [3, 8, 21, 40])
@pytest.mark.parametrize("with_global", [True, False])
def test_softmax_gives_the_original_outputs_and_gradients(length: int, with_global: bool) -> None:
    given = inputs(length)
    if not with_global:
        del given["global_attention_mask"]
    real = given["attention_mask"].bool()
    results = []
    for model in (longformer(), ba.convert(longformer(), ba.Softmax())):
        states = model(**given).last_hidden_state[real]
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        results.append([states.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)])
    assert len(results[0]) == len(results[1]) > 30
    for original, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, original, rtol=1e-4, atol=1e-4)


def test_each_real_query_has_the_kl_of_the_keys_that_it_sees() -> None:
    given = inputs(12)
    model = ba.convert(longformer(), ba.Weibull(k=3.0), where=0)
    with torch.no_grad(), ba.record() as latents:
        model(**given)
    window, keys = 2, [12, 6, 12]
    expected = []
    for example, length in enumerate(keys):
        is_global = given["global_attention_mask"][example].bool()
        seen = 0
        for query in range(length):
            near = {key for key in range(length) if abs(key - query) <= window}
            everywhere = {key for key in range(length) if is_global[key]}
            seen += length if is_global[query] else len(near | everywhere)
        expected.append(2.0 * seen)  # heads
    counted = torch.stack([term.elements for term in latents.local_terms]).sum(0)
    assert counted.tolist() == expected
    assert (latents.local_kl > 0).all()


def test_draws_differ_and_padding_is_never_seen() -> None:
    given = inputs(12)
    model = ba.convert(longformer(), ba.Weibull(k=2.0, prior=ba.ContextualGamma()))
    changed = {**given, "input_ids": given["input_ids"].masked_fill(given["attention_mask"] == 0, 30)}
    outputs = []
    for each, seed in ((given, 0), (changed, 0), (given, 1)):
        torch.manual_seed(seed)
        with torch.no_grad(), ba.sampling():
            outputs.append(model(**each).last_hidden_state[given["attention_mask"].bool()])
    assert torch.equal(outputs[0], outputs[1])
    assert (outputs[0] - outputs[2]).abs().max() > 0.01


def test_attentions_in_the_layout_of_windows_are_refused() -> None:
    model = ba.convert(longformer(), ba.Weibull())
    with pytest.raises(ValueError, match=r"output_attentions=True.*ba\.attention_weights"):
        model(**inputs(8), output_attentions=True)
    weights = ba.attention_weights(model, inputs(8), samples=2)
    names = [f"encoder.layer.{layer}.attention.self{run}" for layer in (0, 1) for run in ("", " #2")]
    assert list(weights) == names
    first = weights[names[0]].mean  # of the local queries; the second run is that of the global ones
    assert (first[2, :, 0, 3:] == 0).all()
    torch.testing.assert_close(first[2].sum(-1), torch.ones(2, 8))
