"""Looking at attention weights: what is seen is what the layers used."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba


def encoder(posterior: ba.Posterior) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return ba.convert(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), posterior)


def test_the_weights_of_a_layer_are_those_that_made_its_output() -> None:
    torch.manual_seed(0)
    attention = ba.nn.MultiheadAttention(16, 2, batch_first=True, posterior=ba.Weibull(k=2.0))
    x = torch.randn(3, 5, 16)
    seen = ba.attention_weights(attention, (x, x, x), samples=3, generator=torch.Generator().manual_seed(1))
    (weights,) = seen.values()
    with ba.sampling(torch.Generator().manual_seed(1)):
        first = attention.eval()(x, x, x, need_weights=True, average_attn_weights=False)[1]
    torch.testing.assert_close(weights.samples[0], first)
    torch.testing.assert_close(weights.point, attention(x, x, x, average_attn_weights=False)[1])
    torch.testing.assert_close(weights.samples.sum(-1), torch.ones(3, 3, 2, 5))


def test_layers_come_by_name_in_order_and_modes_are_restored() -> None:
    model = encoder(ba.LogNormal(sigma=0.5))
    model.train()
    model.layers[1].eval()
    layers = ba.attention_weights(model, torch.randn(2, 4, 16), samples=2)
    assert list(layers) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert model.layers[0].training
    assert not model.layers[1].training


def test_masked_keys_have_no_weight_in_samples_and_prior() -> None:
    model = encoder(ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=0.1)))
    padding = torch.tensor([[False, False, False, True], [False, False, False, False]])
    x = torch.randn(2, 4, 16)
    layers = ba.attention_weights(model, {"src": x, "src_key_padding_mask": padding}, samples=4)
    for weights in layers.values():
        assert (weights.samples[:, 0, ..., 3] == 0).all()
        assert (weights.prior[0, ..., 3] == 0).all()
        torch.testing.assert_close(weights.prior.sum(-1), torch.ones(2, 2, 4))


def test_the_prior_is_what_its_distribution_expects() -> None:
    """W of Gamma(alpha_j, rate beta) draws is Dirichlet(alpha): its mean is alpha / Σ alpha, whatever beta."""
    attention = ba.nn.MultiheadAttention(
        16, 2, batch_first=True, posterior=ba.Weibull(k=3.0, prior=ba.ContextualGamma(beta=2.0, hidden=4))
    )
    x = torch.randn(1, 5, 16)
    (weights,) = ba.attention_weights(attention, (x, x, x), samples=1).values()
    posterior = attention.posterior
    assert isinstance(posterior, ba.Weibull)
    _, key, _ = nn.functional.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    keys = key.view(1, 5, 2, 8).transpose(1, 2)
    alpha = posterior.prior.share_logits(keys).softmax(-1) * 2.0
    draws = torch.distributions.Gamma(alpha, 2.0).sample(torch.Size([100_000]))
    shares = draws / draws.sum(-1, keepdim=True)
    error = shares.std(0) / 100_000**0.5
    assert ((shares.mean(0) - weights.prior[:, :, 0]).abs() < 5 * error).all()


@pytest.mark.parametrize(
    ("posterior", "expected"), [(ba.Dirichlet(), "uniform"), (ba.Gaussian(), "point"), (ba.Softmax(), "uniform")]
)
def test_priors_that_do_not_look_at_the_keys(posterior: ba.Posterior, expected: str) -> None:
    (weights, _) = ba.attention_weights(encoder(posterior), torch.randn(2, 4, 16), samples=1).values()
    wanted = torch.full_like(weights.prior, 0.25) if expected == "uniform" else weights.point
    torch.testing.assert_close(weights.prior, wanted)


def test_large_inputs_that_a_kernel_would_take_are_seen_too() -> None:
    x = torch.randn(8, 64, 16)
    layers = ba.attention_weights(encoder(ba.Weibull(k=5.0)), x, samples=1)
    assert layers["layers.0.self_attn"].mean.shape == (8, 2, 64, 64)


def test_edges_of_a_graph_are_seen() -> None:
    layer = ba.nn.GraphAttention(8, 4, num_heads=2, posterior=ba.Weibull(k=5.0))
    edges = torch.tensor([[0, 1, 2, 1], [0, 0, 0, 1]])
    (weights,) = ba.attention_weights(layer, (torch.randn(3, 8), edges), samples=2).values()
    torch.testing.assert_close(weights.mean[:3].sum(0), torch.ones(2))


def test_a_layer_that_runs_twice_is_numbered() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = ba.nn.MultiheadAttention(16, 2, batch_first=True, posterior=ba.Weibull(k=5.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.attention(x, x, x)[0]
            return self.attention(x, x, x)[0]

    assert list(ba.attention_weights(Twice(), torch.randn(1, 3, 16), samples=1)) == ["attention", "attention #2"]


def test_a_model_without_bayesian_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no Bayesian attention"):
        ba.attention_weights(nn.Linear(3, 3), torch.randn(2, 3))
