"""What every adapter does to a layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.convert.attach import attach_posterior, change_class, restore_class


def test_the_posterior_follows_the_layers_dtype_and_mode() -> None:
    layer = nn.Linear(4, 4).to(torch.bfloat16).eval()
    template = ba.Weibull(prior=ba.ContextualGamma())
    attach_posterior(layer, template, num_heads=2, head_dim=2)
    assert {weight.dtype for weight in layer.parameters()} == {torch.bfloat16}
    assert layer.posterior is not template
    assert not layer.posterior.training
    assert template.needs_binding


def test_a_layers_own_attribute_is_not_overwritten() -> None:
    layer = nn.Linear(4, 4)
    layer.posterior = nn.Identity()
    with pytest.raises(ValueError, match="Linear already has an attribute 'posterior'"):
        attach_posterior(layer, ba.Softmax(), num_heads=1, head_dim=4)


def test_a_class_is_changed_and_restored() -> None:
    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    expected = layer(x)
    change_class(layer, Doubled)
    assert isinstance(layer, nn.Linear)
    torch.testing.assert_close(layer(x), 2 * expected)
    restore_class(layer)
    assert type(layer) is nn.Linear
    assert torch.equal(layer(x), expected)
