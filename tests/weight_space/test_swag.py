"""SWAG: its moments, and what is drawn from them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.weight_space.swag import SwagMoments


def test_moments_are_those_of_what_was_collected() -> None:
    moments = SwagMoments.empty(4, rank=3)
    vectors = torch.randn(7, 4)
    for vector in vectors:
        moments.add(vector)
    torch.testing.assert_close(moments.mean, vectors.mean(0))
    torch.testing.assert_close(moments.variance, vectors.var(0, correction=0), rtol=1e-4, atol=1e-6)
    means = torch.stack([vectors[: n + 1].mean(0) for n in range(7)])
    torch.testing.assert_close(moments.deviations, (vectors - means)[-3:])


def test_a_small_variance_of_large_weights_is_kept() -> None:
    """Weights 1 ± 1e-4: their squares differ in the last digit of float32."""
    vectors = 1.0 + 1e-4 * torch.randn(20, 500, dtype=torch.float64)
    moments = SwagMoments.empty(500, rank=3)
    for vector in vectors.float():
        moments.add(vector)
    torch.testing.assert_close(
        moments.variance, vectors.float().double().var(0, correction=0).float(), rtol=0.01, atol=0
    )


def test_draws_have_half_the_diagonal_and_half_the_low_rank_covariance() -> None:
    torch.manual_seed(0)
    moments = SwagMoments.empty(3, rank=5)
    for vector in torch.randn(9, 3) @ torch.tensor([[1.0, 0.9, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 2.0]]):
        moments.add(vector)
    draws = torch.stack([moments.draw() for _ in range(8000)])
    expected = 0.5 * torch.diag(moments.variance) + 0.5 * moments.deviations.T @ moments.deviations / 4
    torch.testing.assert_close(draws.T.cov(), expected, atol=0.08, rtol=0.06)
    torch.testing.assert_close(draws.mean(0), moments.mean, atol=0.08, rtol=0)


def collected(where: str | None = None) -> nn.Module:
    torch.manual_seed(0)
    model = ba.weight_space.swag(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), where=where, rank=3)
    for _ in range(5):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        ba.weight_space.collect(model)
    return model


def test_eval_has_averaged_weights_and_training_the_last_ones() -> None:
    model, x = collected(), torch.randn(6, 3)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if "swag" not in key})
    torch.testing.assert_close(model.train()(x), plain(x))
    nn.utils.vector_to_parameters(model.swag_moments.mean, plain.parameters())  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(model.eval()(x), plain(x))


def test_a_sample_is_one_network_for_all_inputs() -> None:
    model, x = collected(), torch.randn(1, 3).repeat(4, 1)
    samples = ba.predict(model, x, samples=8, max_rows=2).samples
    assert torch.equal(samples, samples[:, :1].expand_as(samples))
    assert (samples.std(0) > 0.01).all()


def test_a_sub_network_draws_its_own_parameters_alone() -> None:
    model = collected(where="last")
    assert len(model.swag_parameters) == 4 * 2 + 2  # pyright: ignore[reportArgumentType]


def test_the_moments_are_saved() -> None:
    model, x = collected(), torch.randn(2, 3)
    again = ba.weight_space.swag(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), rank=3)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again.eval()(x), model.eval()(x))


def test_moments_of_the_older_form_are_loaded() -> None:
    model = collected()
    state = model.state_dict()
    state["swag_square"] = state.pop("swag_variance") + state["swag_mean"].square()
    again = ba.weight_space.swag(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), rank=3)
    again.load_state_dict(state)
    torch.testing.assert_close(again.swag_variance, model.swag_variance, rtol=1e-4, atol=1e-5)
    assert "swag_square" in state


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ValueError, match=r"call ba.weight_space.swag\(model\) first"):
        ba.weight_space.collect(nn.Linear(2, 2))
    model = ba.weight_space.swag(nn.Linear(2, 2))
    ba.weight_space.collect(model)
    with pytest.raises(RuntimeError, match=r"collected 1 time\(s\), a covariance needs at least 2"):
        ba.predict(model, torch.randn(3, 2), samples=4)
    with pytest.raises(ValueError, match="collects its weights already"):
        ba.weight_space.swag(collected())
