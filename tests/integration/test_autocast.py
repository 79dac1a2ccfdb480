"""bf16 autocast: noise and KL stay in float32, loss and gradients are close to those of float32."""

from __future__ import annotations

import pytest
import torch

from helpers.training_steps import POSTERIORS, build, data, gradients, step


@pytest.mark.parametrize("name", POSTERIORS)
def test_loss_and_gradients_are_close_to_float32(name: str) -> None:
    x, padding = data()
    plain, mixed = build(POSTERIORS[name]), build(POSTERIORS[name])
    expected, kl = step(plain, x, padding, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, mixed_kl = step(mixed, x, padding, seed=1)
    assert mixed_kl.dtype == torch.float32
    assert torch.allclose(mixed_kl, kl, rtol=0.02)
    assert torch.allclose(loss.float(), expected, rtol=0.05)
    mine = gradients(mixed)
    for parameter, gradient in gradients(plain).items():
        if gradient.norm() > 1e-3:
            cosine = torch.nn.functional.cosine_similarity(mine[parameter].flatten(), gradient.flatten(), dim=0)
            assert cosine > 0.97, (parameter, cosine)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", POSTERIORS)
def test_a_model_in_half_precision_draws_the_same_noise(name: str, dtype: torch.dtype) -> None:
    x, padding = data()
    plain, half = build(POSTERIORS[name]), build(POSTERIORS[name]).to(dtype)
    expected, kl = step(plain, x, padding, seed=1)
    loss, half_kl = step(half, x.to(dtype), padding, seed=1)
    assert half_kl.dtype == torch.float32
    assert torch.allclose(half_kl, kl, rtol=0.02)
    assert torch.allclose(loss.float(), expected, rtol=0.05)
    assert all(gradient.isfinite().all() for gradient in gradients(half).values())
