"""Additive attention: Bahdanau's formula, masks, and the KL of any posterior."""

from __future__ import annotations

import torch

import bayesattn as ba


def test_it_is_bahdanaus_formula() -> None:
    attention = ba.nn.AdditiveAttention(4, 6, 5)
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 7, 6), torch.randn(2, 7, 2)
    mask = torch.rand(2, 7) > 0.3
    mask[:, 0] = True
    context, weights = attention(query, key, value, mask)
    for b in range(2):
        for i in range(3):
            scores = torch.stack(
                [
                    attention.score(
                        torch.tanh(attention.query_projection(query[b, i]) + attention.key_projection(key[b, j]))
                    ).squeeze()
                    for j in range(7)
                ]
            )
            expected = scores.masked_fill(~mask[b], float("-inf")).softmax(0)
            assert torch.allclose(weights[b, i], expected, atol=1e-6)
            assert torch.allclose(context[b, i], expected @ value[b], atol=1e-6)


def test_the_prior_sees_the_projected_keys_and_padding_adds_nothing() -> None:
    attention = ba.nn.AdditiveAttention(4, 6, 5, ba.Weibull(2.0, ba.ContextualGamma(0.3, 3)))
    query, key = torch.randn(2, 3, 4), torch.randn(2, 7, 6)
    keep = torch.tensor([True] * 5 + [False] * 2).expand(2, 7)
    with ba.record() as padded:
        _, weights = attention(query, key, attn_mask=keep, query_mask=torch.tensor([[True, True, False]] * 2))
    with ba.record() as short:
        attention(query[:, :2], key[:, :5])
    assert (weights[..., 5:] == 0).all()
    assert torch.allclose(padded.local_kl, short.local_kl, rtol=1e-5)


def test_it_samples_in_training_and_not_in_eval() -> None:
    attention = ba.nn.AdditiveAttention(4, 6, 5, ba.LogNormal(1.0))
    query, key = torch.randn(2, 3, 4), torch.randn(2, 7, 6)
    assert not torch.equal(attention(query, key)[1], attention(query, key)[1])
    attention.eval()
    assert torch.equal(attention(query, key)[1], attention(query, key)[1])


def test_a_three_dimensional_mask_is_for_each_query() -> None:
    attention = ba.nn.AdditiveAttention(4, 6, 5)
    query, key = torch.randn(2, 3, 4), torch.randn(2, 3, 6)
    causal = torch.ones(3, 3, dtype=torch.bool).tril().expand(2, 3, 3)
    _, weights = attention(query, key, attn_mask=causal)
    assert (weights.triu(1) == 0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3))
