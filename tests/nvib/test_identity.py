"""The identity initialisation: the model that it was, then less and less of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.nvib import NVIB


def encoder(norm_first: bool) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # no model that was trained has biases of 0
            nn.init.normal_(parameter, parameter.mean().item(), 0.1)
    return model


PADDING = torch.zeros(8, 12, dtype=torch.bool)
PADDING[1, 7:] = True


@pytest.mark.parametrize("norm_first", [True, False])
def test_it_starts_as_the_original_and_leaves_it_by_degrees(norm_first: bool) -> None:
    model, x = encoder(norm_first), torch.randn(8, 12, 32)
    before = model(x, src_key_padding_mask=PADDING)
    ba.convert(model, NVIB(alpha="quadratic"))
    far = (model(x, src_key_padding_mask=PADDING) - before).abs().max()
    ba.nvib.identity(model, [x], forward=lambda batch: model(batch, src_key_padding_mask=PADDING))
    assert far > 0.1
    distances = []
    for tau_alpha in (10.0, 4.0, 2.0, 0.0, -4.0):
        ba.nvib.identity(model, tau_alpha=tau_alpha)
        distance = (model(x, src_key_padding_mask=PADDING) - before)[~PADDING].abs()
        distances.append(distance.mean().item())
        if tau_alpha == 10.0:
            assert distance.max() < 1e-3
    assert distances == sorted(distances)
    assert distances[-1] > 100 * distances[0]


def test_each_tau_moves_away_from_the_original() -> None:
    model, x = encoder(False), torch.randn(8, 12, 32)
    before = model(x)
    ba.nvib.identity(ba.convert(model, NVIB(alpha="quadratic")), [x])
    for change in ({"tau_sigma": 0.5}, {"tau_mu": 0.7}, {"tau_alpha": 0.0}):
        ba.nvib.identity(model, **change)
        assert (model(x) - before).abs().max() > 1e-2, change
    ba.nvib.identity(model)
    assert torch.allclose(model(x), before, atol=1e-3)
    assert torch.equal(ba.revert(model)(x), before)


def test_the_prior_takes_the_mass_that_tau_alpha_gives_up() -> None:
    model, x = encoder(False), torch.randn(8, 12, 32)
    ba.nvib.identity(ba.convert(model, NVIB(alpha="quadratic")), [x])
    attention = model.layers[0].self_attn
    shares = []
    for tau_alpha in (10.0, 3.0, 1.0, 0.0, -1.0, -10.0):
        ba.nvib.identity(model, tau_alpha=tau_alpha)
        shares.append(attention(x, x, x)[1][..., 0].mean().item())  # pyright: ignore
    assert shares == sorted(shares)
    assert shares[0] < 1e-3
    assert shares[-1] > 0.9


def test_a_part_of_an_encoder_decoder_and_modes_are_left_alone() -> None:
    model = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)
    source, target = torch.randn(4, 6, 32), torch.randn(4, 5, 32)
    model.encoder.eval()
    before = model.eval()(source, target)
    model.train()
    ba.convert(model, NVIB(alpha="quadratic"))
    ba.nvib.identity(model, [(source, target)], forward=lambda batch: model(*batch))
    assert all(module.training for module in model.modules())
    model.eval()
    assert torch.allclose(model(source, target), before, atol=1e-3)
    cross = model.decoder.layers[0].multihead_attn.nvib.log_alpha.bias.clone()  # pyright: ignore
    ba.nvib.identity(model.encoder, tau_alpha=0.0)
    assert torch.equal(model.decoder.layers[0].multihead_attn.nvib.log_alpha.bias, cross)  # pyright: ignore
    assert model.encoder.layers[0].self_attn.nvib.log_alpha.bias.item() == 0.0  # pyright: ignore


def test_messages() -> None:
    with pytest.raises(ValueError, match="has no NVIB layer in its attention"):
        ba.nvib.identity(encoder(False))
    with pytest.raises(ValueError, match="cannot be ordinary attention"):
        ba.nvib.identity(ba.convert(encoder(False), NVIB(alpha="exp")))
