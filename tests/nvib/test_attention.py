"""Denoising attention: the closed form against the integral that it solves, its limits, and the fused form of it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.nvib import Mixture, denoising_attention
from bayesattn.nvib.attention import attend_points, key_bias

QUERY = torch.tensor([1.5, -2.0, 0.7])
HEAD_DIM = 2


def three_components() -> Mixture:
    """Three Gaussians of very different widths, and a fourth that is padding."""
    mean = torch.tensor([[1.0, 0.0, -1.0], [-2.0, -1.0, 0.5], [0.3, -3.0, 2.0], [9.0, 9.0, 9.0]])
    variance = torch.tensor([[0.1, 2.0, 0.5], [3.0, 0.2, 1.0], [0.01, 0.5, 6.0], [1.0, 1.0, 1.0]])
    log_weight = torch.tensor([0.3, 1.1, -0.4, 5.0])
    mask = torch.tensor([True, True, True, False])
    return Mixture(mean[None], variance.log()[None], log_weight[None], mask[None])


def integral(mixture: Mixture, draws: int, chunk: int = 500_000) -> tuple[Tensor, Tensor]:
    """E[v | u] by Monte Carlo, with its standard error: v from the mixture, weighted by N(u; v, sqrt(d))."""
    assert mixture.log_variance is not None
    mean, scale = mixture.mean[0], (0.5 * mixture.log_variance[0]).exp()
    noise = math.sqrt(HEAD_DIM)
    totals = torch.zeros(2, dtype=torch.float64)
    moments = torch.zeros(3, 3, dtype=torch.float64)
    for _ in range(draws // chunk):
        chosen = torch.multinomial(mixture.weights[0], chunk, replacement=True)
        points = (mean[chosen] + scale[chosen] * torch.randn(chunk, 3)).double()
        weight = (-(QUERY - points).square().sum(-1) / (2.0 * noise)).exp()
        squared = weight.square()
        totals += torch.stack([weight.sum(), squared.sum()])
        moments += torch.stack([weight @ points, squared @ points, squared @ points.square()])
    estimate = moments[0] / totals[0]
    variance = moments[2] - 2.0 * estimate * moments[1] + estimate.square() * totals[1]
    return estimate, variance.sqrt() / totals[0]


@pytest.mark.parametrize("draws", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_it_is_the_integral_and_the_released_versions_are_not(draws: int) -> None:
    mixture = three_components()
    estimate, error = integral(mixture, draws)
    query = QUERY.view(1, 1, 1, 3)
    exact = denoising_attention(query, mixture, head_dim=HEAD_DIM)[0].flatten()
    assert (exact - estimate).abs().le(4.0 * error).all(), (exact, estimate, error)
    for compat in ("v3", "v1"):
        theirs = denoising_attention(query, mixture, head_dim=HEAD_DIM, compat=compat)[0].flatten()
        assert (theirs - estimate).abs().gt(10.0 * error).any()


@pytest.mark.parametrize(("compat", "square", "volume"), [(None, 0.5, 0.5), ("v3", 0.0, 0.5), ("v1", 0.0, 1.0)])
def test_each_version_is_its_formula_written_out(compat: str | None, square: float, volume: float) -> None:
    mixture = three_components()
    assert mixture.log_variance is not None
    mean, v = mixture.mean[0, :3].double(), mixture.log_variance[0, :3].double().exp() + math.sqrt(HEAD_DIM)
    u = QUERY.double()
    logits = mixture.log_weight[0, :3] + (u * mean / v - 0.5 * mean.square() / v - volume * v.log()).sum(-1)
    weights = (logits - square * (u.square() / v).sum(-1)).softmax(0)
    values = (v - math.sqrt(HEAD_DIM)) / v * u + math.sqrt(HEAD_DIM) / v * mean
    output, found = denoising_attention(QUERY.view(1, 1, 1, 3), mixture, head_dim=HEAD_DIM, compat=compat)  # pyright: ignore
    assert torch.allclose(found.flatten().double()[:3], weights, atol=1e-6)
    assert found.flatten()[3] == 0
    assert torch.allclose(output.flatten().double(), weights @ values, atol=1e-5)


def random_points(batch: int = 2, components: int = 7, dim: int = 12) -> Mixture:
    mask = torch.ones(batch, components, dtype=torch.bool)
    mask[0, -2:] = False
    log_weight = torch.randn(batch, components)
    log_weight[1, 3] = -math.inf
    return Mixture(torch.randn(batch, components, dim), None, log_weight, mask)


def test_gaussians_of_no_width_are_points() -> None:
    points, query = random_points(), torch.randn(2, 3, 5, 12)
    certain = Mixture(points.mean, torch.full_like(points.mean, -1000.0), points.log_weight, points.mask)
    for one, two in zip(
        denoising_attention(query, points, head_dim=4), denoising_attention(query, certain, head_dim=4), strict=True
    ):
        assert torch.allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("variance", [None, 1e-30])
def test_pseudo_counts_that_undo_the_norm_make_it_ordinary_attention(variance: float | None) -> None:
    query, vectors = torch.randn(2, 3, 5, 12), torch.randn(2, 7, 12)
    mask = torch.ones(2, 7, dtype=torch.bool)
    log_alpha = vectors.square().sum(-1) / (2.0 * math.sqrt(4)) + 3.0
    log_variance = None if variance is None else torch.full_like(vectors, math.log(variance))
    ours = denoising_attention(query, Mixture(vectors, log_variance, log_alpha, mask), head_dim=4)[0]
    keys = vectors[:, None].expand(-1, 3, -1, -1)
    assert torch.allclose(ours, F.scaled_dot_product_attention(query, keys, keys, scale=0.5), atol=1e-5)


@pytest.mark.parametrize("gaussian", [True, False])
def test_the_order_of_components_does_not_matter(gaussian: bool) -> None:
    points, query = random_points(), torch.randn(2, 3, 5, 12)
    log_variance = torch.randn(2, 7, 12) if gaussian else None
    mixture = Mixture(points.mean, log_variance, points.log_weight, points.mask)
    order = torch.randperm(7)
    shuffled = Mixture(
        points.mean[:, order],
        None if log_variance is None else log_variance[:, order],
        points.log_weight[:, order],
        points.mask[:, order],
    )
    output, weights = denoising_attention(query, mixture)
    again, shuffled_weights = denoising_attention(query, shuffled)
    assert torch.allclose(output, again, atol=1e-5)
    assert torch.allclose(weights[..., order], shuffled_weights, atol=1e-6)
    assert (weights[0, :, :, -2:] == 0).all(), "padding"
    assert (weights[1, :, :, 3] == 0).all(), "a pseudo-count of 0"


@pytest.mark.parametrize("masked", [True, False])
def test_the_fused_form_is_the_plain_one_with_its_gradients(masked: bool) -> None:
    points, query = random_points(), torch.randn(2, 1, 5, 12)
    attn_mask = torch.zeros(1, 1, 5, 7).masked_fill(torch.rand(1, 1, 5, 7) > 0.7, -math.inf) if masked else None
    if attn_mask is not None:
        attn_mask[..., 0] = 0.0
    gradients = []
    for fused in (True, False):
        mean = points.mean.clone().requires_grad_()
        log_weight = points.log_weight.clone().requires_grad_()
        mixture = Mixture(mean, None, log_weight, points.mask)
        if fused:
            keys = mean.unsqueeze(1)
            output = attend_points(query, keys, keys, key_bias(mixture, math.sqrt(12)), attn_mask)
        else:
            output = denoising_attention(query, mixture, attn_mask)[0]
        gradients.append([output, *torch.autograd.grad(output.square().sum(), (mean, log_weight))])
    for one, two in zip(*gradients, strict=True):
        assert torch.allclose(one, two, atol=1e-4)


def test_a_large_bias_survives_bfloat16() -> None:
    """Keys whose dot products are 0 and whose biases lie 300 below a key that is masked: in bfloat16 they are multiples of 2."""
    bias = torch.tensor([[0.0, -300.0, -300.4, -299.1]])
    query, key = torch.zeros(1, 1, 1, 8, dtype=torch.bfloat16), torch.zeros(1, 1, 4, 8, dtype=torch.bfloat16)
    value = torch.eye(4, 8, dtype=torch.bfloat16)[None, None]
    first_is_masked = torch.tensor([-math.inf, 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    output = attend_points(query, key, value, bias, first_is_masked)[0, 0, 0, :4].float()
    assert torch.allclose(output[1:], bias[0, 1:].softmax(-1), atol=4e-3)


def test_it_fuses() -> None:
    """Torch takes the fused kernel although the bias has a gradient: with all others forbidden it runs."""
    bias = torch.randn(1, 6, requires_grad=True)
    q, k = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 6, 8)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        attend_points(q, k, k, bias, torch.zeros(1, 1, 5, 6)).sum().backward()
    assert bias.grad is not None


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    with pytest.raises(ValueError, match="compat='v2' is not known"):
        denoising_attention(torch.zeros(1, 1, 1, 3), three_components(), compat="v2")  # pyright: ignore
    with pytest.raises(ValueError, match="does not broadcast"):
        denoising_attention(torch.zeros(1, 1, 1, 3), three_components(), torch.ones(3, 3).bool())
