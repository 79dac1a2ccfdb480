"""Modes: what is drawn, and from where."""

from __future__ import annotations

import torch

import bayesattn as ba
from bayesattn.scopes import modes
from helpers.shared_layer import shared


def test_modes() -> None:
    model, x = shared(), torch.randn(4, 5, 8)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))
    with ba.sampling():
        assert not torch.equal(model(x), model(x))
    assert torch.equal(model(x), model(x))


def test_a_generator_decides_all_noise_of_a_block() -> None:
    model, x = shared().eval(), torch.randn(4, 5, 8)

    def draw(seed: int) -> torch.Tensor:
        with ba.sampling(torch.Generator().manual_seed(seed)):
            return model(x)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_one_draw_keeps_what_was_drawn_for_each_source_and_forgets_it() -> None:
    first, second = object(), object()
    numbers = iter(range(10))
    assert [modes.kept_draw(first, lambda: next(numbers)) for _ in range(2)] == [0, 1]
    with modes.one_draw(7):
        draw = modes.current_draw()
        assert draw is not None
        assert draw.index == 7
        assert [modes.kept_draw(first, lambda: next(numbers)) for _ in range(2)] == [2, 2]
        assert modes.kept_draw(second, lambda: next(numbers)) == 3
        with modes.one_draw():
            assert modes.kept_draw(first, lambda: next(numbers)) == 4
        assert modes.kept_draw(first, lambda: next(numbers)) == 2
    assert modes.current_draw() is None
