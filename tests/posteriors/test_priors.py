"""Priors: what they are for each key, and that masks are counted out of their softmax."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import bayesattn as ba
from bayesattn.posteriors.priors import KeyNetwork
from bayesattn.posteriors.rows import DenseRows


def test_the_key_network_is_the_papers() -> None:
    """Psi = softmax over keys of F2(ReLU(F1(K))), one network for all heads."""
    network = KeyNetwork(4, 3)
    keys = torch.randn(2, 3, 5, 4)
    logits = network.outer(F.relu(network.inner(keys))).squeeze(-1)
    shares = network(keys, DenseRows((2, 3, 6, 5)))
    assert torch.allclose(shares, logits.log_softmax(-1).unsqueeze(2), atol=1e-6)


def test_the_softmax_runs_over_the_keys_each_query_may_attend_to() -> None:
    network = KeyNetwork(4, 3)
    keys = torch.randn(1, 1, 5, 4)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    shares = network(keys, DenseRows((1, 1, 5, 5), causal)).exp()
    logits = network.outer(F.relu(network.inner(keys))).flatten()
    for query in range(5):
        assert torch.allclose(shares[0, 0, query, : query + 1], logits[: query + 1].softmax(0), atol=1e-6)


def test_scales_of_alpha_and_location() -> None:
    keys, rows = torch.randn(1, 2, 5, 4), DenseRows((1, 2, 3, 5))
    for prior, reading in (
        (ba.ContextualGamma(0.2, 3), lambda p, psi: torch.allclose(p.log_alpha(keys, rows).exp(), 0.2 * psi)),
        (ba.ContextualGamma(0.2, 3, "one"), lambda p, psi: torch.allclose(p.log_alpha(keys, rows).exp(), psi)),
        (ba.ContextualLogNormal(2.0, 3), lambda p, psi: torch.allclose(p.log_location(keys, rows), psi.log())),
        (ba.ContextualLogNormal(2.0, 3, "share"), lambda p, psi: torch.allclose(p.log_location(keys, rows), psi)),
    ):
        prior.bind(4)
        assert prior.network is not None
        assert reading(prior, prior.network(keys, rows).exp())


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "none"])
def test_activations_differ(activation: str) -> None:
    network = KeyNetwork(4, 3, activation)  # pyright: ignore[reportArgumentType]
    keys = torch.randn(1, 1, 5, 4)
    inner = network.inner(keys)
    function = {"relu": F.relu, "leaky_relu": lambda x: F.leaky_relu(x, 0.1), "tanh": torch.tanh, "none": lambda x: x}
    expected = network.outer(function[activation](inner)).squeeze(-1).log_softmax(-1)
    assert torch.allclose(network(keys, DenseRows((1, 1, 2, 5))).squeeze(2), expected, atol=1e-6)


def test_fixed_priors_are_their_numbers() -> None:
    keys, rows = torch.zeros(1, 1, 2, 2), DenseRows((1, 1, 1, 2))
    assert ba.GammaPrior(1e-15, 1e-10).log_alpha(keys, rows).item() == pytest.approx(math.log(1e-15))
    assert ba.LogNormalPrior(0.3, 2.0).log_location(keys, rows).item() == pytest.approx(0.3)
    assert ba.LogNormalPrior().scale(0.1) == 1.0
    assert ba.LogNormalPrior().scale(7.0) == 7.0
    learnable = ba.LogNormalPrior(0.0, 2.0, learnable=True).scale(0.1)
    assert isinstance(learnable, torch.Tensor)
    assert learnable.item() == pytest.approx(2.0)


@pytest.mark.usefixtures("unchecked")
def test_bad_hyper_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"beta must be a finite number above 0, got 0.0\. It is the rate"):
        ba.GammaPrior(1.0, 0.0)
    with pytest.raises(ValueError, match="alpha must be a finite number above 0, got -2"):
        ba.GammaPrior(-2)
    with pytest.raises(ValueError, match="hidden must be a whole number of at least 1, got 0"):
        ba.ContextualGamma(hidden=0)
    with pytest.raises(ValueError, match="Did you mean 'relu'"):
        ba.ContextualGamma(activation="relus")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="alpha must be a number, got 'much'"):
        ba.GammaPrior("much")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="prior of Weibull must be GammaPrior or ContextualGamma, got LogNormalPrior"):
        ba.Weibull(prior=ba.LogNormalPrior())  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="prior of LogNormal must be LogNormalPrior or ContextualLogNormal"):
        ba.LogNormal(prior=ba.GammaPrior())  # pyright: ignore[reportArgumentType]
