"""Derivatives other than those of one backward pass: right on every backend, or refused in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import bayesattn as ba
from bayesattn.kernels import Backend
from helpers.posterior_cases import FORMS

BACKENDS: tuple[Backend, ...] = ("reference", "chunked", "native", "auto")
GAMMA = {name for name, form in FORMS.items() if isinstance(form, ba.Dirichlet) and not form.approximate}
"""Drawn by rejection: their gradient is the implicit one, which finite differences of the draws do not see."""


def attention(name: str, backend: Backend, mode: str = "train") -> Callable[[Tensor], Tensor]:
    """Output and KL as a function of what is query, key and value at once, with the same noise in every call."""
    torch.manual_seed(0)
    posterior = FORMS[name].bind(num_heads=2, head_dim=4).double().train(mode == "train")

    def run(x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        with ba.record() as latents:
            output = ba.attend(x, x, x, posterior, is_causal=True, generator=generator, backend=backend)
        return torch.cat([output.flatten(), latents.local_kl])

    return run


def point() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(1, 2, 5, 4, dtype=torch.float64), torch.randn(1, 2, 5, 4, dtype=torch.float64)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FORMS)
def test_forward_derivatives_of_every_posterior(name: str, backend: Backend) -> None:
    run, (x, direction) = attention(name, backend), point()
    _, found = torch.func.jvp(run, (x,), (direction,))
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(run(forward_ad.make_dual(x, direction))).tangent
    torch.testing.assert_close(dual, found)
    if name in GAMMA:  # against the backward pass, which is compared with the distribution elsewhere
        leaf = x.clone().requires_grad_()
        outputs = run(leaf)
        cotangent = torch.randn_like(outputs)
        (gradient,) = torch.autograd.grad(outputs, leaf, cotangent)
        torch.testing.assert_close((found * cotangent).sum(), (gradient * direction).sum())
    else:
        step = 1e-6
        difference = (run(x + step * direction) - run(x - step * direction)) / (2 * step)
        torch.testing.assert_close(found, difference, rtol=1e-4, atol=1e-6)
    assert found.abs().max() > 1e-3


@pytest.mark.parametrize("name", ["weibull-contextual", "gaussian", "dirichlet"])
def test_gradients_by_torch_func_and_in_vmap(name: str) -> None:
    run, (x, other) = attention(name, "chunked"), point()
    wanted = []
    for each in (x, other):
        leaf = each.clone().requires_grad_()
        wanted.append(torch.autograd.grad(run(leaf).square().sum(), leaf)[0])
    total = torch.func.grad(lambda each: run(each).square().sum())
    torch.testing.assert_close(total(x), wanted[0])
    deterministic = attention(name, "chunked", "eval")
    several = torch.stack([x, other]).requires_grad_()
    (found,) = torch.autograd.grad(torch.vmap(deterministic)(several).square().sum(), several)
    for each, gradient in zip((x, other), found, strict=True):
        leaf = each.clone().requires_grad_()
        torch.testing.assert_close(gradient, torch.autograd.grad(deterministic(leaf).square().sum(), leaf)[0])


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", FORMS)
def test_second_derivatives_of_the_reference_are_right_or_refused(name: str, mode: str) -> None:
    run, (x, _) = attention(name, "reference", mode), point()
    leaf = x[:, :, :3].clone().requires_grad_()
    if name in GAMMA and mode == "train":
        (gradient,) = torch.autograd.grad(run(leaf).square().sum(), leaf, create_graph=True)
        with pytest.raises(
            NotImplementedError, match="Gamma draws, and so Dirichlet attention while it draws, have no second"
        ):
            torch.autograd.grad(gradient.sum(), leaf)
        with pytest.raises(NotImplementedError, match="have no second derivative"):
            torch.func.jvp(torch.func.grad(lambda each: run(each).sum()), (leaf.detach(),), (leaf.detach(),))
    else:
        assert torch.autograd.gradgradcheck(lambda each: run(each).tanh().sum(), leaf, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["chunked", "native"])
def test_second_derivatives_of_the_kernels_are_refused(backend: Backend) -> None:
    leaf = torch.randn(1, 2, 150, 8, requires_grad=True)
    output = ba.attend(leaf, leaf, leaf, ba.Weibull(), backend=backend)
    (gradient,) = torch.autograd.grad(output.square().sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"no second derivative .* backend='reference'"):
        torch.autograd.grad(gradient.square().sum(), leaf)


def test_forward_derivatives_of_parameters_and_in_half_precision() -> None:
    x = torch.randn(1, 2, 150, 8)
    posterior = ba.Gaussian().bind(num_heads=2, head_dim=8)
    raw = posterior.scale.raw.detach()  # pyright: ignore

    def of_parameter(raw: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        generator, inputs = torch.Generator().manual_seed(3), x.to(dtype)
        call = (inputs, inputs, inputs, posterior)
        return torch.func.functional_call(
            _Attention(posterior, generator), {"posterior.scale.raw": raw}, call[:3], strict=False
        )

    _, found = torch.func.jvp(of_parameter, (raw.double(),), (torch.ones_like(raw.double()),))
    step = 1e-6
    difference = (of_parameter(raw.double() + step) - of_parameter(raw.double() - step)) / (2 * step)
    torch.testing.assert_close(found, difference, rtol=1e-5, atol=1e-7)
    half = x.half()
    single, low = (
        torch.func.jvp(lambda each: ba.attend(each, each, each, ba.Softmax()), (inputs,), (inputs,))[1]
        for inputs in (half.float(), half)
    )
    torch.testing.assert_close(low.float(), single, rtol=2e-2, atol=2e-2)


class _Attention(torch.nn.Module):
    def __init__(self, posterior: ba.Posterior, generator: torch.Generator):
        super().__init__()
        self.posterior, self.generator = posterior, generator

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ba.attend(query, key, value, self.posterior, generator=self.generator, backend="chunked")


def test_the_reason_is_told() -> None:
    x = torch.zeros(1, 2, 150, 8)
    reasons = []

    def look(each: Tensor) -> Tensor:
        reasons.append(str(ba.kernels.explain(x, x, x, ba.Weibull(), backend="chunked")))
        return each.sum()

    torch.func.jvp(look, (x,), (x,))
    torch.func.grad(look)(x)
    torch.vmap(look)(x)
    with torch.no_grad():
        torch.vmap(look)(x)
    look(x)
    asked = "reference: chunked was asked for, but the kernels have no rule for "
    assert reasons[0] == asked + "forward-mode derivatives (jvp, dual tensors)"
    assert reasons[1] == asked + "derivatives by torch.func (grad, vjp, jacrev)"
    assert reasons[2] == asked + "gradients inside torch.vmap"
    assert reasons[3:] == ["chunked: asked for"] * 2
