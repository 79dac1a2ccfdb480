"""Concrete dropout: what it drops, its KL, where it is."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.experiments.models.timeseries import TimeSeriesTransformer
from bayesattn.weight_space.concrete_dropout import ConcreteDropout


def test_it_drops_with_its_probability_and_keeps_the_mean() -> None:
    dropout = ConcreteDropout(0.2, temperature=0.1, length_scale=1.0)
    kept = dropout.dropped(torch.ones(200_000)) * 0.8
    assert (1 - kept).mean().item() == pytest.approx(0.2, abs=0.005)  # the sheet: 0.202
    assert ((kept < 0.05) | (kept > 0.95)).float().mean() > 0.8  # nearly a coin


def test_the_kl_is_the_formula() -> None:
    layer = nn.Linear(6, 4)
    model = ba.weight_space.concrete_dropout(nn.Sequential(layer), initial=0.3, length_scale=0.5)
    with ba.record() as latents:
        model(torch.randn(2, 6))
    squares = layer.weight.square().sum() + layer.bias.square().sum()
    entropy = -0.3 * math.log(0.3) - 0.7 * math.log(0.7)
    torch.testing.assert_close(latents.global_kl, 0.25 * 0.7 / 2 * squares - 6 * entropy)


def test_the_probability_learns_that_an_input_is_noise_free() -> None:
    """The target is the input itself: dropping hurts, and the likelihood pushes the probability down."""
    torch.manual_seed(0)
    model = ba.weight_space.concrete_dropout(nn.Linear(4, 4), initial=0.4)
    nn.init.eye_(model.weight)
    nn.init.zeros_(model.bias)
    x = torch.randn(256, 4)
    optimiser = torch.optim.Adam([model.concrete_dropout.logit], lr=0.1)
    for _ in range(60):
        with ba.record() as latents:
            nll = 5 * (model(x) - x).square().sum(1)
        optimiser.zero_grad()
        ba.elbo(nll, latents, dataset_size=256).backward()
        optimiser.step()
    assert model.concrete_dropout.probability.item() < 0.05


def test_eval_drops_nothing_and_sampling_does() -> None:
    torch.manual_seed(1)
    plain = TimeSeriesTransformer(6, 8, feedforward=8)
    x = torch.randn(3, 6)
    expected = plain.eval()(x)
    model = ba.weight_space.concrete_dropout(plain)
    torch.testing.assert_close(model(x), expected)
    prediction = ba.predict(model, x, samples=20, likelihood="gaussian")
    assert (prediction.epistemic_variance > 1e-6).all()


def test_where_it_is() -> None:
    model = ba.weight_space.concrete_dropout(TimeSeriesTransformer(6, 8, feedforward=8), where="attention")
    found = {name for name, module in model.named_modules() if isinstance(module, ConcreteDropout)}
    block = "encoder.layers.0.self_attn"
    assert found == {f"{block}.concrete_dropout", f"{block}.out_proj.concrete_dropout"}
    starts = {round(m.probability.item(), 4) for m in model.modules() if isinstance(m, ConcreteDropout)}
    assert len(starts) == 2
    assert all(0.1 <= start <= 0.5 for start in starts)


def test_self_attention_drops_its_input_once() -> None:
    """Query, key and value see the same dropped input."""
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 1, batch_first=True, bias=False)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.eye(8).repeat(3, 1))
    model = ba.weight_space.concrete_dropout(nn.ModuleList([attention]), initial=0.5)[0]
    assert isinstance(model, ba.nn.MultiheadAttention)
    x = torch.randn(2, 3, 8)
    q, k, v = model._project_inputs(x, x, x)
    assert torch.equal(q, k)
    assert torch.equal(k, v)
    assert not torch.allclose(q, x)


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ValueError, match="there is nothing to drop"):
        ba.weight_space.concrete_dropout(nn.LayerNorm(3))
    with pytest.raises(ValueError, match=r"initial must lie in \(0, 1\)"):
        ba.weight_space.concrete_dropout(nn.Linear(2, 2), initial=1.0)
    model = ba.weight_space.concrete_dropout(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="has concrete dropout already"):
        ba.weight_space.concrete_dropout(model)
