"""Masks: boolean, additive and causal ones taken apart."""

from __future__ import annotations

import pytest
import torch

from bayesattn.attention.masks import split_mask

SCORES = torch.zeros(2, 3, 4, 5)


def test_a_boolean_mask_allows_and_adds_nothing() -> None:
    mask = torch.rand(2, 1, 4, 5) > 0.5
    allowed, bias = split_mask(mask, False, SCORES)
    assert bias is None
    assert torch.equal(allowed, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_an_additive_mask_blocks_at_its_lowest_and_is_a_bias_elsewhere(dtype: torch.dtype) -> None:
    lowest = torch.finfo(dtype).min
    mask = torch.tensor([0.0, -1e4, float("-inf"), lowest, 2.0], dtype=dtype)
    allowed, bias = split_mask(mask, False, SCORES)
    assert allowed is not None
    assert bias is not None
    assert allowed.flatten().tolist() == [True, True, False, False, True]
    expected = torch.tensor([0.0, -1e4, 0.0, 0.0, 2.0], dtype=dtype).float()
    assert torch.equal(bias.flatten(), expected)


def test_causal_and_mask_combine() -> None:
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[:, 0] = False
    allowed, _ = split_mask(mask, True, SCORES)
    expected = torch.tensor([[j != 0 and j <= i for j in range(5)] for i in range(4)])
    assert torch.equal(allowed, expected[None, None])
    assert split_mask(None, False, SCORES) == (None, None)
