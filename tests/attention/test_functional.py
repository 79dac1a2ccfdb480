"""Attention: what it equals, what never leaks, what stays finite, what it says about bad input."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import bayesattn as ba
from helpers.posterior_cases import EXTREMES, FORMS, MAX_LEN

NOISELESS = {
    "softmax": ba.Softmax(),
    "weibull k→∞": ba.Weibull(k=1e7),
    "lognormal σ→0": ba.LogNormal(sigma=1e-7),
    "gaussian σ→0": ba.Gaussian(initial_sigma=1e-7),
}


def bound(posterior: ba.Posterior, heads: int, features: int) -> ba.Posterior:
    return posterior.bind(num_heads=heads, head_dim=features)


def qkv(
    batch: int = 2, heads: int = 4, queries: int = 6, keys: int = 6, features: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(batch, heads, queries, features),
        torch.randn(batch, heads, keys, features),
        torch.randn(batch, heads, keys, features + 1),
    )


@pytest.mark.parametrize("name", NOISELESS)
@pytest.mark.parametrize("mask", ["none", "boolean", "additive", "causal"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_without_noise_it_is_scaled_dot_product_attention(name: str, mask: str, scale: float | None) -> None:
    q, k, v = qkv(queries=5)
    posterior = bound(NOISELESS[name], 4, 8)
    allowed = torch.rand(2, 1, 5, 6) > 0.3
    allowed[..., 0] = True
    attn_mask = {"boolean": allowed, "additive": torch.randn(4, 5, 6).masked_fill(~allowed[0], float("-inf"))}.get(mask)
    ours = ba.attend(q, k, v, posterior, attn_mask, mask == "causal", scale)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=mask == "causal", scale=scale)
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_in_eval_mode_every_posterior_is_softmax_attention(name: str) -> None:
    q, k, v = qkv()
    posterior = bound(FORMS[name], 4, 8).eval()
    assert torch.allclose(ba.attend(q, k, v, posterior), F.scaled_dot_product_attention(q, k, v), atol=1e-5)


def test_gradients_are_those_of_scaled_dot_product_attention() -> None:
    inputs = [x.double().requires_grad_() for x in qkv()]
    ours = torch.autograd.grad(ba.attend(*inputs, ba.Softmax(), is_causal=True).sin().sum(), inputs)
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(*inputs, is_causal=True).sin().sum(), inputs)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(ours, theirs, strict=True))


def test_a_learned_bias_in_the_mask_gets_its_gradient() -> None:
    q, k, v = (x.double() for x in qkv())
    bias = torch.randn(1, 4, 6, 6, dtype=torch.float64)
    blocked = torch.ones(6, 6, dtype=torch.bool).triu(1)

    def gradient(attention: object) -> Tensor:
        leaf = bias.clone().requires_grad_()
        mask = leaf.masked_fill(blocked, float("-inf"))
        return torch.autograd.grad(attention(mask).sin().sum(), leaf)[0]  # pyright: ignore[reportCallIssue]

    ours = gradient(lambda mask: ba.attend(q, k, v, ba.Softmax(), mask))
    theirs = gradient(lambda mask: F.scaled_dot_product_attention(q, k, v, mask))
    assert torch.allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_query_heads(groups: int) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4 // groups, 6, 8), torch.randn(2, 4 // groups, 6, 8)
    ours = ba.attend(q, k, v, ba.Softmax(), enable_gqa=True)
    assert torch.allclose(ours, F.scaled_dot_product_attention(q, k, v, enable_gqa=True), atol=1e-5)


def test_grouped_query_heads_have_the_kl_of_repeated_keys() -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    posterior = ba.Weibull(5.0, ba.ContextualGamma(0.1, 3)).bind(num_heads=4, head_dim=8)
    with ba.record() as grouped:
        ba.attend(q, k, v, posterior, enable_gqa=True)
    with ba.record() as repeated:
        ba.attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), posterior)
    assert torch.allclose(grouped.local_kl, repeated.local_kl)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_soft_cap_bounds_the_scores_before_masks_and_noise(groups: int) -> None:
    q, k, v = qkv(heads=4, queries=5, keys=7)
    k, v = k[:, : 4 // groups], v[:, : 4 // groups]
    bias = torch.randn(2, 4, 5, 7)
    bias[..., 3] = -torch.inf
    arguments: dict = {"enable_gqa": True, "need_weights": True, "generator": torch.Generator().manual_seed(1)}
    output, weights = ba.attend(q, k, v, ba.Weibull(k=2.0), bias, scale=2.0, softcap=1.5, **arguments)
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    capped = 1.5 * torch.tanh(2.0 * q @ k.transpose(2, 3) / 1.5)
    expected = ba.attend_scores(capped, k, v, ba.Weibull(k=2.0), bias, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close((output, weights), expected)
    with pytest.raises(ValueError, match=r"softcap must be a finite number above 0, got 0\.0"):
        ba.attend(q, k, v, ba.Softmax(), softcap=0.0)


@pytest.mark.parametrize("prior", [ba.ContextualGamma(), ba.ContextualLogNormal()], ids=["gamma", "lognormal"])
@pytest.mark.parametrize("backend", ["reference", "chunked", "auto"])
def test_the_priors_network_runs_once_for_a_kl_and_never_without(prior: ba.Posterior, backend) -> None:
    from bayesattn.posteriors.priors import KeyNetwork

    kind = ba.Weibull if isinstance(prior, ba.ContextualGamma) else ba.LogNormal
    posterior = kind(prior=prior).bind(num_heads=2, head_dim=8)  # pyright: ignore[reportArgumentType]
    calls = []
    run = KeyNetwork.logits
    q = torch.randn(1, 2, 150, 8, requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyNetwork, "logits", lambda self, keys: (calls.append(1), run(self, keys))[1])
        with torch.no_grad(), ba.sampling():
            ba.attend(q, q, q, posterior.eval(), backend=backend)
        ba.kernels.explain(q, q, q, posterior, backend=backend)
        assert len(calls) == 0
        with ba.record() as latents:
            output = ba.attend(q, q, q, posterior.train(), backend=backend)
        (output.sum() + latents.local_kl.sum()).backward()
        assert len(calls) == 1
    assert next(posterior.prior.parameters()).grad is not None


@pytest.mark.parametrize("backend", ["reference", "chunked", "native"])
@pytest.mark.parametrize("name", FORMS)
def test_nothing_to_attend_to_is_zeros_without_a_kl(name: str, backend) -> None:
    for sizes in ((2, 0, 5), (2, 5, 0), (0, 5, 5)):
        for mask in ("none", "boolean", "causal", "lengths"):
            _expect_zeros(name, backend, mask, *sizes)


def _expect_zeros(name: str, backend, mask: str, batch: int, queries: int, keys: int) -> None:
    posterior = bound(FORMS[name], 2, 4)
    q, k, v = (torch.randn(batch, 2, length, 4, requires_grad=True) for length in (queries, keys, keys))
    arguments: dict = {
        "boolean": {"attn_mask": torch.ones(batch, 1, queries, keys, dtype=torch.bool)},
        "causal": {"is_causal": True},
        "lengths": {"key_lengths": torch.zeros(batch, dtype=torch.long)},
    }.get(mask, {})
    with ba.record() as latents:
        output = ba.attend(q, k, v, posterior, backend=backend, **arguments)
    assert torch.equal(output, torch.zeros(batch, 2, queries, 4))
    assert torch.equal(latents.local_kl, torch.zeros(batch))
    (term,) = latents.local_terms
    assert all((count == 0).all() for count in (term.elements, term.rows, term.tokens))
    (output.sum() + latents.local_kl.sum()).backward()
    for tensor in (q, k, v, *posterior.parameters()):
        assert tensor.grad is None or bool((tensor.grad == 0).all())


def test_one_head_may_be_left_out() -> None:
    q, k, v = (x[:, 0] for x in qkv())
    mask = torch.rand(2, 6, 6) > 0.3
    ours, weights = ba.attend(q, k, v, ba.Softmax(), mask, need_weights=True)
    theirs = F.scaled_dot_product_attention(q, k, v, mask)
    assert torch.allclose(ours[~theirs.isnan()], theirs[~theirs.isnan()], atol=1e-5)
    assert torch.allclose(weights @ v, ours, atol=1e-6)


def test_dropout_is_torchs() -> None:
    q, k, v = qkv()
    torch.manual_seed(3)
    ours = ba.attend(q, k, v, ba.Softmax(), dropout_p=0.4)
    torch.manual_seed(3)
    theirs = F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_weights_are_those_that_made_the_output() -> None:
    q, k, v = qkv()
    output, weights = ba.attend(q, k, v, ba.Weibull(1.0), is_causal=True, need_weights=True)
    assert torch.allclose(weights @ v, output, atol=1e-6)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 6), atol=1e-6)
    assert not torch.allclose(
        weights, ba.attend(q, k, v, ba.Softmax(), is_causal=True, need_weights=True)[1], atol=0.01
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_stay_finite_and_never_leak(name: str, dtype: torch.dtype) -> None:
    _check_safety(name, dtype, queries=5, keys=5, size=1.0, is_causal=True, kind="boolean", seed=0)
    _check_safety(name, dtype, queries=5, keys=5, size=1e4, is_causal=True, kind="additive", seed=1)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(EXTREMES)),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    queries=st.integers(1, MAX_LEN),
    keys=st.integers(1, MAX_LEN),
    size=st.sampled_from([0.0, 1.0, 30.0, 1e3, 1e4]),
    is_causal=st.booleans(),
    kind=st.sampled_from(["none", "boolean", "additive", "lowest"]),
    seed=st.integers(0, 10_000),
)
def test_nothing_leaks_and_all_is_finite(
    name: str, dtype: torch.dtype, queries: int, keys: int, size: float, is_causal: bool, kind: str, seed: int
) -> None:
    _check_safety(name, dtype, queries, keys, size, is_causal, kind, seed)


def _check_safety(
    name: str, dtype: torch.dtype, queries: int, keys: int, size: float, is_causal: bool, kind: str, seed: int
) -> None:
    """Masked and future keys get weight exactly 0, rows without keys give zeros; outputs, loss and gradients are finite."""
    torch.manual_seed(seed)
    batch, heads, features = 2, 2, 4
    posterior = bound(EXTREMES[name], heads, features)
    if all(parameter.abs().max() < torch.finfo(dtype).max for parameter in posterior.parameters()):
        posterior = posterior.to(dtype)  # float16 cannot hold a scale of 1e15: there the posterior stays in float32
    # sign · sqrt(size) in one feature makes scores of ±size, which float16 can still hold
    q, k, v = (torch.randn(batch, heads, n, features) for n in (queries, keys, keys))
    q[..., 0], k[..., 0] = q[..., 0].sign() * size**0.5, k[..., 0].sign() * size**0.5
    q, k, v = (x.to(dtype).requires_grad_() for x in (q, k, v))
    allowed = torch.rand(batch, 1, queries, keys) > 0.4
    allowed[0, :, 0] = False  # a row without keys
    masks = {
        "none": None,
        "boolean": allowed,
        "additive": torch.randn(allowed.shape).masked_fill(~allowed, float("-inf")).to(dtype),
        "lowest": torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min),
    }
    visible = torch.ones(batch, 1, queries, keys, dtype=torch.bool) if kind == "none" else allowed
    if is_causal:
        visible = visible & torch.ones(queries, keys, dtype=torch.bool).tril()
    with ba.record() as latents:
        output, weights = ba.attend(q, k, v, posterior, masks[kind], is_causal, scale=1.0, need_weights=True)
    assert (weights.masked_select(~visible) == 0).all(), "a masked or future key got weight"
    sums = weights.float().sum(-1, keepdim=True)
    whole = visible.any(-1, keepdim=True).float().expand_as(sums)
    assert torch.allclose(sums, whole, atol=0.05 if dtype != torch.float32 else 1e-5)
    assert (output.masked_select(~visible.any(-1, keepdim=True)) == 0).all(), "a row without keys is not zero"
    loss = ba.elbo(output.float().square().mean((1, 2, 3)), latents, kl_reduction="sum", compare_gradients=False).loss
    loss.backward()
    assert output.isfinite().all()
    assert loss.isfinite()
    for tensor in (q, k, v, *posterior.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()


@pytest.mark.parametrize("name", FORMS)
def test_no_future_token_influences_an_output(name: str) -> None:
    # one example and head: torch's Gamma sampler uses up more or fewer random numbers, which shifts those of what comes later
    q, k, v = qkv(batch=1, heads=1)
    posterior = bound(FORMS[name], 1, 8)

    def run(k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(0)
        return ba.attend(q, k, v, posterior, is_causal=True)

    before = run(k, v)
    k[:, :, 4:] += 10.0
    v[:, :, 4:] += 10.0
    assert torch.equal(before[:, :, :4], run(k, v)[:, :, :4])


@pytest.mark.usefixtures("unchecked")
class TestMessages:
    def test_shapes(self) -> None:
        q, k, v = qkv()
        with pytest.raises(ValueError, match=r"must all be \[batch, heads, length, features\].*query \(4, 6, 8\)"):
            ba.attend(q[0], k, v, ba.Softmax())
        with pytest.raises(ValueError, match="same number of features"):
            ba.attend(q[..., :7], k, v, ba.Softmax())
        with pytest.raises(ValueError, match="lengths and heads of key and value"):
            ba.attend(q, k, v[:, :, 1:], ba.Softmax())
        with pytest.raises(ValueError, match="query has 4 heads, key 2: pass enable_gqa=True"):
            ba.attend(q, k[:, :2], v[:, :2], ba.Softmax())
        with pytest.raises(ValueError, match="must be a multiple of the key heads"):
            ba.attend(q, k[:, :3], v[:, :3], ba.Softmax(), enable_gqa=True)
        with pytest.raises(TypeError, match="one floating dtype"):
            ba.attend(q, k.double(), v, ba.Softmax())

    def test_masks(self) -> None:
        q, k, v = qkv()
        with pytest.raises(TypeError, match=r"got torch.int64.*attn_mask.bool\(\)"):
            ba.attend(q, k, v, ba.Softmax(), torch.ones(6, 6, dtype=torch.int64))
        with pytest.raises(
            ValueError, match=r"attn_mask of shape \(2, 5\) does not broadcast.*mask\[:, None, None, :\]"
        ):
            ba.attend(q, k, v, ba.Softmax(), torch.ones(2, 5, dtype=torch.bool))
        with pytest.raises(
            ValueError, match=r"query_mask must be a boolean tensor of shape \(batch, query\) = \(2, 6\)"
        ):
            ba.attend(q, k, v, ba.Softmax(), query_mask=torch.ones(2, 6))

    def test_posteriors_and_numbers(self) -> None:
        q, k, v = qkv()
        with pytest.raises(
            TypeError, match=r"posterior must be a Posterior such as ba.Weibull\(k=10.0\), got 'weibull'"
        ):
            ba.attend(q, k, v, "weibull")  # pyright: ignore
        with pytest.raises(ValueError, match=r"posterior.bind\(num_heads=..., head_dim=...\)"):
            ba.attend(q, k, v, ba.Gaussian())
        with pytest.raises(ValueError, match=r"dropout_p must lie in \[0, 1\), got 1.5"):
            ba.attend(q, k, v, ba.Softmax(), dropout_p=1.5)
        with pytest.raises(ValueError, match="scale must be a finite number"):
            ba.attend(q, k, v, ba.Softmax(), scale=float("nan"))
