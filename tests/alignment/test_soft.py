"""Soft attention, and soft attention with the K largest weights."""

from __future__ import annotations

import torch

from bayesattn.alignment import Soft
from helpers.alignment_problems import MASK, problem


def test_it_is_the_likelihood_of_the_average() -> None:
    small = problem()
    loss, kl = small.run(Soft())
    average = torch.einsum("bs,bsf->bf", small.log_p().exp(), small.memory[:, MASK])
    assert torch.allclose(loss, -small.log_f(average[None, :, None])[0, :, 0])
    assert (kl == 0).all()


def test_k_max_averages_the_k_largest_and_is_exact_with_all() -> None:
    small = problem()

    def value(k_max: int | None) -> torch.Tensor:
        mixture = Soft().mixture(small.memory, small.prior, source_mask=small.mask, k_max=k_max)
        return mixture.log_probability(small.log_f)[:, 0]

    top = small.log_p().argmax(-1)
    assert torch.allclose(value(1), small.every_log_f().gather(1, top[:, None])[:, 0])
    assert torch.allclose(value(4), value(None))
    assert torch.allclose(value(None), -small.run(Soft())[0])
