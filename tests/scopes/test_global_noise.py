"""Dropout from a generator: torch's law, the generator's numbers, attention's own weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bayesattn as ba
from bayesattn.scopes.global_noise import noise_from


def within_binomial(count: int, of: int, p: float) -> bool:
    """Whether so many of so many are within five standard deviations of what they should be."""
    return abs(count - of * p) < 5 * (of * p * (1 - p)) ** 0.5


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_element_is_dropped_with_its_probability_and_the_mean_stays(p: float) -> None:
    with noise_from(seeded()):
        dropped = nn.Dropout(p)(torch.ones(20_000))
    assert within_binomial(int((dropped == 0).sum()), 20_000, p)
    torch.testing.assert_close(dropped[dropped != 0].unique(), torch.tensor([1 / (1 - p)]))


@pytest.mark.parametrize(("layer", "shape"), [(nn.Dropout1d, (6, 50, 4)), (nn.Dropout2d, (6, 50, 4, 3))])
def test_whole_channels_are_dropped(layer: type[nn.Module], shape: tuple[int, ...]) -> None:
    with noise_from(seeded()):
        dropped = layer(0.5)(torch.ones(shape)).flatten(2)
    assert bool((dropped == dropped[..., :1]).all())
    assert within_binomial(int((dropped[..., 0] == 0).sum()), 300, 0.5)


def test_weights_of_torchs_fused_attention_are_dropped() -> None:
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    with noise_from(seeded()):
        plain = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        draws = torch.stack([F.scaled_dot_product_attention(q, k, v, None, 0.4, is_causal=True) for _ in range(1_000)])
    torch.testing.assert_close(plain, F.scaled_dot_product_attention(q, k, v, is_causal=True))
    error = (draws.mean(0) - plain) / (draws.std(0) / 1_000**0.5 + 1e-6)
    assert error.abs().max() < 5, "dropout must keep the mean"
    first = draws[:, :, :, 0] / plain[:, :, 0]
    assert bool(torch.isclose(first.unsqueeze(-1), torch.tensor([0.0, 1 / 0.6]), atol=1e-3).any(-1).all()), (
        "the first query has one key: all or nothing"
    )


def test_grouped_heads_are_those_of_torch() -> None:
    q, k, v = torch.randn(2, 4, 5, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    with noise_from(seeded()):
        nearly = F.scaled_dot_product_attention(q, k, v, None, 1e-9, enable_gqa=True)
    torch.testing.assert_close(nearly, F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


def test_what_has_a_generator_of_its_own_keeps_it_and_other_noise_is_drawn_too() -> None:
    with noise_from(seeded()):
        own, other = torch.rand(5, generator=seeded(7)), torch.randn(5)
    torch.testing.assert_close(own, torch.rand(5, generator=seeded(7)), rtol=0, atol=0)
    torch.testing.assert_close(other, torch.randn(5, generator=seeded()), rtol=0, atol=0)


def test_dropout_in_inference_mode_is_that_of_ordinary_mode() -> None:
    def drop() -> torch.Tensor:
        with noise_from(seeded()):
            return F.dropout(torch.ones(50), 0.5)

    with torch.inference_mode():
        inside = drop()
    torch.testing.assert_close(inside, drop(), rtol=0, atol=0)


def test_what_cannot_be_drawn_from_a_generator_is_refused() -> None:
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    q = torch.randn(1, 2, 3, 4)
    with noise_from(seeded()):
        torch.testing.assert_close(fused(q, q, q)[0], F.scaled_dot_product_attention(q, q, q))
        with pytest.raises(ValueError, match="generator= cannot be used with aten::_scaled_dot_product_flash"):
            fused(q, q, q, 0.5)


@pytest.mark.parametrize("posterior", [ba.Softmax(), ba.Weibull(k=3.0)])
def test_predict_with_dropout_is_decided_by_its_generator(posterior: ba.Posterior) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.3, batch_first=True)
    model = ba.convert(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), posterior)
    x = torch.randn(3, 5, 16)

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(torch.seed() % 1_000)  # the global generator is anything
        return ba.predict(model, x, samples=6, dropout=True, likelihood="values", generator=seeded(seed)).samples

    first = draw(0)
    torch.testing.assert_close(first, draw(0), rtol=0, atol=0)
    assert not torch.equal(first, draw(1))
    assert bool((first.std(0) > 0).any()), "samples must differ"
