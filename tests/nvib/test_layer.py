"""The NVIB layer: its forms of α, modes, records, prior, and that nothing in it can become NaN."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesattn as ba
from bayesattn.nvib import NVIB, DenoisingMultiheadAttention, gaussian_kl, pseudo_count_kl
from helpers.monte_carlo import assert_is_mean

X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])


@pytest.mark.parametrize("alpha", ["relu", "exp", "quadratic"])
def test_pseudo_counts_are_their_formula(alpha: str) -> None:
    nvib = NVIB(8, alpha=alpha)  # pyright: ignore
    torch.nn.init.normal_(nvib.log_alpha.weight)
    posterior = nvib.posterior(X)
    linear = (X @ nvib.log_alpha.weight.T + nvib.log_alpha.bias).squeeze(-1)
    if alpha == "relu":
        expected = linear.relu()
        assert (expected == 0).any()
        assert (posterior.log_weight[:, 1:][expected == 0] == -math.inf).all()
    else:
        square = X.square().sum(-1) / (2.0 * math.sqrt(8)) if alpha == "quadratic" else 0.0
        expected = (linear + square).exp()
    assert torch.allclose(posterior.log_weight[:, 1:].exp(), expected, rtol=1e-4)
    skipped = nvib.posterior(X, previous_log_alpha=torch.full((3, 5), math.log(3.0)))
    assert torch.allclose(skipped.log_weight[:, 1:].exp(), 3.0 * expected, rtol=1e-4)
    assert (skipped.log_weight[:, 0] == 0).all()


def test_the_prior_is_the_first_component_and_moves_and_saves_with_the_layer() -> None:
    nvib = NVIB(8, prior_mean=0.5, prior_variance=2.0, prior_alpha=3.0)
    posterior = nvib.posterior(X, PADDING)
    assert posterior.log_variance is not None
    assert (posterior.mean[:, 0] == 0.5).all()
    assert torch.allclose(posterior.log_variance[:, 0].exp(), torch.tensor(2.0))
    assert torch.allclose(posterior.log_weight[:, 0].exp(), torch.tensor(3.0))
    assert torch.equal(posterior.mask[:, 1:], ~PADDING)
    assert {name for name, _ in nvib.named_buffers()} <= set(nvib.state_dict())
    assert {tensor.dtype for tensor in NVIB(8).double().state_dict().values()} == {torch.float64}


def test_modes() -> None:
    nvib = NVIB(8, kappa=2)
    assert nvib(X).mean.shape == (3, 12, 8)
    assert not torch.equal(nvib(X).mean, nvib(X).mean)
    nvib.eval()
    latent, posterior = nvib(X), nvib.posterior(X)
    assert latent.log_variance is not None
    assert torch.equal(latent.mean, posterior.mean)
    assert torch.equal(latent.log_weight, posterior.log_weight)
    drawn = []
    for _ in range(2):
        with ba.sampling(torch.Generator().manual_seed(3)):
            drawn.append(nvib(X))
    assert drawn[0].log_variance is None
    assert torch.equal(drawn[0].mean, drawn[1].mean)


def test_the_threshold_drops_small_counts_in_evaluation_but_never_the_prior() -> None:
    nvib = NVIB(8, threshold=1.0, prior_alpha=0.01).eval()
    counts = nvib.posterior(X).log_weight[:, 1:].exp()
    kept = nvib(X).kept
    assert kept[:, 0].all()
    assert torch.equal(kept[:, 1:], counts > 1.0)
    assert 0 < kept[:, 1:].sum() < 15
    assert nvib.train()(X).kept.all()


@pytest.mark.parametrize("normalisation", ["paper", "sum"])
def test_both_kls_are_recorded_apart_with_their_weights(normalisation: str) -> None:
    options = {"kappa": 2, "normalisation": normalisation}
    nvib = NVIB(8, delta=0.3, lambda_dirichlet=2.0, lambda_gaussian=1e-3, **options)  # pyright: ignore
    with ba.record() as latents:
        nvib(X, PADDING)
    posterior = nvib.posterior(X, PADDING)
    by_name = latents.by_layer(nvib)
    weights = pseudo_count_kl(posterior, torch.tensor(0.0), delta=0.3, **options)  # pyright: ignore
    vectors = gaussian_kl(posterior, torch.zeros(8), torch.zeros(8), **options)  # pyright: ignore
    assert torch.allclose(by_name["dirichlet"], 2.0 * weights)
    assert torch.allclose(by_name["gaussian"], 1e-3 * vectors)
    assert torch.allclose(latents.local_kl, 2.0 * weights + 1e-3 * vectors)
    assert latents.local_terms[0].tokens.tolist() == [5, 3, 4]


@pytest.mark.parametrize("alpha", ["relu", "exp", "quadratic"])
def test_the_order_of_tokens_does_not_matter(alpha: str) -> None:
    attention = DenoisingMultiheadAttention(8, 2, nvib=NVIB(alpha=alpha), batch_first=True).eval()  # pyright: ignore
    order = torch.tensor([3, 0, 4, 1, 2])
    query, results = torch.randn(3, 2, 8), []
    for keys, padding in ((X, PADDING), (X[:, order], PADDING[:, order])):
        with ba.record() as latents:
            output, weights = attention(query, keys, key_padding_mask=padding)
        results.append((output, weights, latents.local_kl))
    (output, weights, kl), (again, shuffled, same_kl) = results
    assert torch.allclose(output, again, atol=1e-5)
    assert torch.allclose(weights[..., 1:][..., order], shuffled[..., 1:], atol=1e-6)
    assert torch.allclose(kl, same_kl, rtol=1e-5)


def test_padding_changes_nothing() -> None:
    nvib = NVIB(8, delta=0.2)
    with ba.record() as padded:
        nvib(X, PADDING)
    with ba.record() as short:
        nvib(X[1:2, :3])
    assert torch.allclose(padded.local_kl[1], short.local_kl[0], rtol=1e-5)


@pytest.mark.parametrize("kappa", [1, 2])
def test_samples_of_the_prior_have_its_law(kappa: int) -> None:
    nvib = NVIB(1, prior_mean=1.0, prior_variance=4.0, prior_alpha=2.0, delta=0.5, kappa=kappa)
    lengths = torch.tensor([2, 1]).repeat(40_000)
    drawn = nvib.sample_prior(lengths)
    assert drawn.log_variance is None
    assert drawn.mask.sum(-1)[:2].tolist() == [3 * kappa, 2 * kappa]
    assert_is_mean(drawn.mean[:, 0, 0], 1.0)
    assert_is_mean((drawn.mean[:, 0, 0] - 1.0).square(), 4.0)
    for start, components, total in ((0, 3 * kappa, 3.0), (1, 2 * kappa, 2.5)):
        weights, share = drawn.weights[start::2], 1.0 / components
        assert_is_mean(weights[:, :components], share)
        assert_is_mean(weights[:, 0].square(), share * (share * total + 1) / (total + 1))
        assert (weights[:, components:] == 0).all()


def test_a_layer_is_its_config() -> None:
    nvib = NVIB(8, num_heads=2, alpha="relu", kappa=3, delta=0.1, threshold=0.2, compat="v3", normalisation="sum")
    again = ba.from_config(json.loads(json.dumps(nvib.config())))
    again.load_state_dict(nvib.state_dict())
    assert again.config() == nvib.config()
    assert torch.equal(again.eval()(X).mean, nvib.eval()(X).mean)
    template = NVIB(alpha="quadratic", delta=0.1)
    assert not list(template.parameters())
    bound = template.bind(dim=8, num_heads=2)
    assert (bound.dim, bound.num_heads, bound.delta, bound.alpha) == (8, 2, 0.1, "quadratic")
    assert bound.log_alpha_of_square.weight[0, 0].item() == pytest.approx(0.25)


def extreme(
    alpha: str, log_alpha: float, squared_norm: float, log_variance: float, dtype: torch.dtype, seed: int
) -> None:
    """One training step of self-attention over a latent with these sizes: everything is finite, gradients too."""
    torch.manual_seed(seed)
    attention = DenoisingMultiheadAttention(
        8,
        2,
        nvib=NVIB(alpha=alpha, delta=0.25),
        batch_first=True,
        dtype=dtype,  # pyright: ignore
    )
    nvib = attention.nvib
    assert nvib is not None
    count = math.exp(log_alpha) if alpha == "relu" else log_alpha
    torch.nn.init.constant_(nvib.log_alpha.bias, count)
    torch.nn.init.normal_(nvib.log_alpha.weight, std=abs(count) * 1e-3)
    torch.nn.init.constant_(nvib.log_variance.bias, log_variance)
    x = torch.randn(2, 4, 8)
    x = (x * (squared_norm**0.5 / x.norm(dim=-1, keepdim=True))).to(dtype).requires_grad_()
    padding = torch.tensor([[False] * 4, [False] * 3 + [True]])
    for training in (True, False):
        attention.train(training)
        with ba.record() as latents:
            output, _ = attention(x, x, x, key_padding_mask=padding, need_weights=False)
        loss = ba.elbo(output.float().square().mean((1, 2)), latents)
        loss.backward()
        assert output.isfinite().all()
        assert latents.local_kl.isfinite().all()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in attention.parameters())
        attention.zero_grad()
        x.grad = None


SIZES = {
    "alpha": st.sampled_from(["relu", "exp", "quadratic"]),
    "log_alpha": st.floats(math.log(1e-6), math.log(1e6)),
    "squared_norm": st.floats(0.0, 1e4),
    "log_variance": st.floats(-30.0, 30.0),
    "dtype": st.sampled_from([torch.float32, torch.bfloat16]),
    "seed": st.integers(0, 10_000),
}


@settings(max_examples=80, deadline=None, derandomize=True)
@given(**SIZES)
def test_every_size_is_finite(**sizes: object) -> None:
    extreme(**sizes)  # pyright: ignore


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(**SIZES)
def test_every_size_is_finite_ten_thousand_times(**sizes: object) -> None:
    extreme(**sizes)  # pyright: ignore


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    for arguments, message in (
        ({"alpha": "softplus"}, "alpha='softplus' is not known"),
        ({"kappa": 0}, "kappa must be a whole number of at least 1"),
        ({"delta": -0.1}, "delta must not be negative, got -0.1"),
        ({"prior_alpha": 0.0}, "prior_alpha must be a finite number above 0"),
        ({"num_heads": 3}, "dim=8 must be a multiple of num_heads=3"),
        ({"normalisation": "mean"}, "normalisation='mean' is not known"),
    ):
        with pytest.raises(ValueError, match=message):
            NVIB(8, **arguments)  # pyright: ignore
    with pytest.raises(ValueError, match="is a template"):
        NVIB()(X)
    with pytest.raises(ValueError, match="leave dim out to make a template"):
        NVIB(8).bind(dim=16, num_heads=2)
    with pytest.raises(ValueError, match=r"x must have shape \(batch, tokens, dim=8\)"):
        NVIB(8)(torch.zeros(2, 8))
    with pytest.raises(ValueError, match="padding_mask must be boolean"):
        NVIB(8)(X, PADDING.float())
    with pytest.raises(ValueError, match="lengths must be a tensor of whole numbers"):
        NVIB(8).sample_prior(torch.tensor([1.5]))
    with pytest.raises(ValueError, match="cannot be ordinary attention"):
        NVIB(8).set_identity()
