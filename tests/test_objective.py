"""The objective: what is added to what, and the schedules."""

from __future__ import annotations

import math

import pytest
import torch

import bayesattn as ba
from bayesattn.numerics import gradients as gradients_of
from bayesattn.scopes import recording


def recorded(batch: int = 3) -> ba.Latents:
    """Two layers of an attention with padding, and a global term."""
    posterior = ba.Weibull(2.0)
    q = torch.randn(batch, 2, 4, 3, requires_grad=True)
    mask = torch.ones(batch, 1, 1, 4, dtype=torch.bool)
    mask[0, ..., 2:] = False
    query_mask = mask[:, 0, 0]
    with ba.record() as latents:
        for _ in range(2):
            ba.attend(q, q, q, posterior, mask, query_mask=query_mask)
    return latents


def test_the_elbo_is_nll_plus_local_plus_global_over_the_data_set() -> None:
    latents = recorded()
    with ba.record() as both:
        recording.add_global(torch.tensor(50.0), object())
    both._last.previous = latents._last  # pyright: ignore[reportOptionalMemberAccess]
    nll = torch.tensor([1.0, 2.0, 6.0])
    result = ba.elbo(nll, both, dataset_size=100, kl_weight=0.5, kl_reduction="sum")
    expected = 3.0 + 0.5 * (latents.local_kl.mean().item() + 0.5)
    assert result.loss.item() == pytest.approx(expected)
    assert result.nll.item() == pytest.approx(3.0)
    assert result.local_kl.item() == pytest.approx(latents.local_kl.mean().item())
    assert result.global_kl.item() == pytest.approx(0.5)


def test_positions_of_a_sequence_are_summed() -> None:
    nll = torch.rand(3, 7)
    assert ba.elbo(nll, None).loss.item() == pytest.approx(nll.sum(1).mean().item())


def test_reductions_divide_by_what_counts() -> None:
    latents = recorded()
    kl = [term.kl for term in latents.local_terms]
    nll = torch.zeros(3)
    # 2 heads, 4 queries and keys, or 2 of each where padded
    elements, rows, tokens = (torch.tensor([float(a), b, b]) for a, b in ((2 * 2 * 2, 2 * 16), (2 * 2, 2 * 4), (2, 4)))
    for reduction, expected in (
        ("light", 0.01 * (kl[0] + kl[1]) / elements / 2),
        ("sum", kl[0] + kl[1]),
        ("mean", (kl[0] + kl[1]) / elements / 2),
        ("per_query", (kl[0] + kl[1]) / rows / 2),
        ("per_token", (kl[0] + kl[1]) / tokens),
    ):
        result = ba.elbo(nll, latents, kl_reduction=reduction)  # pyright: ignore[reportArgumentType]
        assert result.local_kl.item() == pytest.approx(expected.mean().item(), rel=1e-5)


def test_by_default_attention_weights_count_lightly_and_other_latents_wholly() -> None:
    """The KL of an alignment or a bottleneck is the point of it; that of a head is divided by nothing but the data set's size."""
    attention = recorded()
    others = [torch.tensor([3.0, 4.0, 5.0]), torch.tensor([1.0, 1.0, 7.0])]
    with ba.record() as both:
        for kl in others:
            recording.add_local(kl, *(torch.full((3,), 9.0),) * 3, source=object())
        recording.add_global(torch.tensor(50.0), object())
    nll = torch.rand(3)
    alone = ba.elbo(nll, both, dataset_size=100)
    assert alone.local_kl.item() == pytest.approx(7.0)
    both._last.previous.previous.previous = attention._last  # pyright: ignore[reportOptionalMemberAccess]
    found = ba.elbo(nll, both, dataset_size=100)
    light = 0.01 * ba.elbo(nll, attention, kl_reduction="mean").local_kl.item()
    assert light > 0
    assert found.loss.item() == pytest.approx(nll.mean().item() + 7.0 + light + 0.5)


def test_a_kl_that_dwarfs_the_likelihood_is_told_once() -> None:
    torch.manual_seed(0)
    model = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=ba.Weibull(k=10.0))
    x = torch.randn(4, 6, 8)

    def parts() -> tuple[torch.Tensor, ba.Latents]:
        with ba.record() as latents:
            return model(x, x, x)[0].square().mean((1, 2)), latents

    nll, latents = parts()
    parameters = list(model.parameters())
    gradients = [
        torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        for loss in (nll.mean(), latents.local_kl.mean())
    ]
    shared = [
        (a, b) for a, b in zip(*gradients, strict=True) if a is not None and b is not None and a.any() and b.any()
    ]
    assert 0 < len(shared) < len(parameters), "the output's projection has no KL"
    norms = [torch.cat([each[place].flatten() for each in shared]).norm().item() for place in (0, 1)]
    assert gradients_of.shared_norms(nll.mean(), latents.local_kl.mean()) == pytest.approx(norms, rel=1e-5)
    ratio = norms[1] / norms[0]
    assert ratio > 100

    ba.elbo(nll, latents)  # by default, all is well
    ba.elbo(nll, latents, kl_reduction="sum", compare_gradients=False)
    ba.elbo(nll, latents, kl_reduction="sum", kl_weight=2.0 / ratio)  # as large as the likelihood's
    with pytest.warns(UserWarning, match=f"gradient is {ratio:.0f} times the likelihood's .* kl_reduction='light'"):
        loss = ba.elbo(nll, latents, kl_reduction="sum")
    loss.backward()  # the graph is still there
    nll, latents = parts()
    ba.elbo(nll, latents, kl_reduction="sum").backward()


def test_the_bound_holds_and_is_tight_at_the_true_posterior() -> None:
    """One weight vector, categorical likelihood: the ELBO is below the log evidence, by the KL to the true posterior.

    y is drawn through W ~ Dirichlet(p): p(y = j) = E[W_j], so the posterior given y = j is Dirichlet(p + e_j), which the
    Dirichlet posterior with scores log(p + e_j) and sharpness sum(p) + 1 is exactly.
    """
    concentration = torch.full((3,), 0.8)
    truth = concentration + torch.tensor([0.0, 1.0, 0.0])
    evidence = (concentration[1] / concentration.sum()).log()

    def bound(alpha: torch.Tensor, draws: int = 200_000) -> torch.Tensor:
        posterior = ba.Dirichlet(
            prior_concentration=0.8, initial_sharpness=alpha.sum().item(), kl_form="dirichlet"
        ).bind(num_heads=1, head_dim=1)
        torch.nn.init.constant_(next(posterior.parameters()), math.log(math.expm1(alpha.sum().item())))
        scores = alpha.log().expand(draws, 1, 1, 3)
        value = torch.eye(3).expand(draws, 1, 3, 3)
        with torch.no_grad(), ba.record() as latents:
            output, _ = ba.attend_scores(scores, value, value, posterior)
        nll = -output[:, 0, 0, 1].clamp_min(1e-30).log()
        return ba.elbo(nll, latents, kl_reduction="sum").loss

    assert -bound(truth).item() == pytest.approx(evidence.item(), abs=0.01)
    assert -bound(torch.tensor([2.0, 1.0, 0.5])).item() < evidence.item() - 0.1


def test_schedules() -> None:
    assert [ba.schedules.constant(0.3)(step) for step in (0, 10)] == [0.3, 0.3]
    assert [ba.schedules.linear(4)(step) for step in (0, 1, 4, 9)] == [0.0, 0.25, 1.0, 1.0]
    assert [ba.schedules.linear(2, 1.0, 0.5)(step) for step in (0, 1, 2)] == [1.0, 0.75, 0.5]
    assert ba.schedules.sigmoid(0.1)(0) == 0.5
    assert ba.schedules.sigmoid(0.1)(30) == pytest.approx(1 / (1 + math.exp(-3.0)))
    assert ba.schedules.sigmoid(1.0)(10_000) == 1.0, "the reference's form is NaN from epoch 89 on"
    assert [ba.schedules.cyclic(4, 0.5)(step) for step in range(5)] == [0.0, 0.5, 1.0, 1.0, 0.0]


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    latents = recorded()
    with pytest.raises(ValueError, match="got a scalar: compute it with reduction='none'"):
        ba.elbo(torch.tensor(1.0), latents)
    with pytest.raises(ValueError, match="nll has 2 examples, the recorded KL has 3"):
        ba.elbo(torch.zeros(2), latents)
    with pytest.raises(ValueError, match="latents is empty"), ba.record() as empty:
        ba.elbo(torch.zeros(2), empty)
    with pytest.raises(ValueError, match="Did you mean 'mean'"):
        ba.elbo(torch.zeros(3), latents, kl_reduction="means")  # pyright: ignore[reportArgumentType]
    with ba.record() as weights:
        recording.add_global(torch.tensor(1.0), object())
    with pytest.raises(ValueError, match="pass dataset_size="):
        ba.elbo(torch.zeros(3), weights)
    with pytest.raises(ValueError, match="kl_weight must be a finite number"):
        ba.elbo(torch.zeros(3), latents, kl_weight=float("nan"))
    with pytest.raises(ValueError, match=r"kl_weight must be a finite number of at least 0, got -1\. A negative one"):
        ba.elbo(torch.zeros(3), latents, kl_weight=-1)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1"):
        ba.schedules.linear(0)
    with pytest.raises(ValueError, match=r"ramp must lie in \(0, 1\]"):
        ba.schedules.cyclic(4, 0.0)
    with pytest.raises(ValueError, match="rho must be a finite number above 0"):
        ba.schedules.sigmoid(0.0)
