"""Multi-head attention: torch's module, with a posterior."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba

OPTIONS = [
    {},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True},
    {"kdim": 6, "vdim": 7},
    {"batch_first": True},
]


def pair(**options: object) -> tuple[nn.MultiheadAttention, ba.nn.MultiheadAttention]:
    torchs = nn.MultiheadAttention(8, 2, **options)  # pyright: ignore[reportArgumentType]
    ours = ba.nn.MultiheadAttention(8, 2, **options)
    ours.load_state_dict(torchs.state_dict())
    return torchs, ours


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
def test_with_softmax_it_is_torchs_module(options: dict[str, object], training: bool) -> None:
    torchs, ours = (module.train(training) for module in pair(**options))
    key_size, value_size = options.get("kdim", 8), options.get("vdim", 8)
    q, k, v = torch.randn(5, 3, 8), torch.randn(4, 3, key_size), torch.randn(4, 3, value_size)  # pyright: ignore
    if options.get("batch_first"):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    attn_mask = torch.zeros(5, 4, dtype=torch.bool)
    attn_mask[0, 1:] = True
    padding = torch.zeros(3, 4, dtype=torch.bool)
    padding[1, 3] = True
    additive = torch.randn(6, 5, 4).masked_fill(attn_mask, float("-inf"))
    cases = [
        {},
        {"attn_mask": attn_mask},
        {"key_padding_mask": padding},
        {"attn_mask": attn_mask, "key_padding_mask": padding},
        {"attn_mask": additive},
        {"attn_mask": additive[0], "key_padding_mask": torch.zeros(3, 4).masked_fill(padding, float("-inf"))},
        {"average_attn_weights": False},
        {"need_weights": False},
    ]
    for case in cases:
        theirs, their_weights = torchs(q, k, v, **case)
        mine, my_weights = ours(q, k, v, **case)
        assert torch.allclose(mine, theirs, atol=1e-6), case
        if their_weights is None:
            assert my_weights is None
        else:
            assert torch.allclose(my_weights, their_weights, atol=1e-6), case


def test_without_a_batch() -> None:
    torchs, ours = pair()
    q, k = torch.randn(5, 8), torch.randn(4, 8)
    padding = torch.tensor([False, False, True, False])
    for mine, theirs in zip(ours(q, k, k, padding), torchs(q, k, k, padding), strict=True):
        assert mine.shape == theirs.shape
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_dropout_is_torchs_given_the_seed() -> None:
    torchs, ours = pair(dropout=0.4, batch_first=True)
    x = torch.randn(3, 5, 8)
    outputs = []
    for module in (torchs, ours):
        torch.manual_seed(1)
        outputs.append(module(x, x, x, need_weights=False)[0])
    assert torch.allclose(outputs[0], outputs[1], atol=1e-6)


def test_is_causal_alone_masks_the_future() -> None:
    _, ours = pair(batch_first=True)
    x = torch.randn(3, 5, 8)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert torch.allclose(ours(x, x, x, is_causal=True)[0], ours(x, x, x, attn_mask=future)[0])


def test_state_dict_is_torchs_plus_the_posterior() -> None:
    torchs, _ = pair()
    ours = ba.nn.MultiheadAttention(8, 2, posterior=ba.Weibull(2.0, ba.ContextualGamma(hidden=3)))
    extra = set(ours.state_dict()) - set(torchs.state_dict())
    assert set(torchs.state_dict()) <= set(ours.state_dict())
    assert {name.split(".")[0] for name in extra} == {"posterior"}


def test_weights_are_the_sampled_ones() -> None:
    ours = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=ba.Weibull(1.0))
    x = torch.randn(3, 5, 8)
    output, weights = ours(x, x, x, average_attn_weights=False)
    _, _, v = ours._project(x, x, x)
    again = ours.out_proj((weights @ v).transpose(1, 2).flatten(2))
    assert torch.allclose(output, again, atol=1e-6)
    assert not torch.allclose(weights, ours(x, x, x, average_attn_weights=False)[1], atol=1e-3)


def test_padding_adds_nothing_to_the_kl() -> None:
    ours = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=ba.Weibull(2.0, ba.ContextualGamma(0.5, 3)))
    x = torch.randn(1, 6, 8)
    padding = torch.tensor([[False] * 4 + [True] * 2])
    with ba.record() as padded:
        ours(x, x, x, padding)
    with ba.record() as additive:
        ours(x, x, x, torch.zeros(1, 6).masked_fill(padding, float("-inf")))
    with ba.record() as short:
        ours(x[:, :4], x[:, :4], x[:, :4])
    with ba.record() as cross:
        ours(x, x.clone(), x, padding, query_padding_mask=padding)
    for latents in (padded, additive, cross):
        assert torch.allclose(latents.local_kl, short.local_kl, rtol=1e-5)


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    _, ours = pair(batch_first=True)
    x = torch.randn(3, 5, 8)
    with pytest.raises(ValueError, match="must all have 3 dimensions"):
        ours(x, x[0], x)
    with pytest.raises(ValueError, match=r"attn_mask must have shape \(5, 5\) or \(6, 5, 5\), got \(4, 5\)"):
        ours(x, x, x, attn_mask=torch.zeros(4, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"key_padding_mask must have shape \(batch, key\) = \(3, 5\), got \(5, 3\)"):
        ours(x, x, x, torch.zeros(5, 3, dtype=torch.bool))
    with pytest.raises(
        TypeError, match=r"key_padding_mask must be boolean \(True = may not attend.*use key_padding_mask.bool"
    ):
        ours(x, x, x, torch.zeros(3, 5, dtype=torch.int64))
    nested = torch.nested.nested_tensor([torch.randn(2, 8)], layout=torch.jagged)
    with pytest.raises(TypeError, match="Nested tensors are not supported"):
        ours(nested, nested, nested)
