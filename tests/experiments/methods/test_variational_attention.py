"""Each method's posterior is what its name says, and the KL enters the objective as its options say."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.methods.unstable import SampledKLWeibull
from bayesattn.experiments.methods.variational_attention import AttentionMethod, DirichletOptions, GaussianOptions
from bayesattn.experiments.tasks import TASKS
from bayesattn.numerics.positive import THESIS_START

TASK = TASKS.create("digits")
ATTENTION = [entry.name for entry in METHODS if entry.name.startswith(("attn-", "bam-"))]

EXPECTED: dict[str, tuple[type, dict[str, Any]]] = {
    "attn-gaussian": (ba.Gaussian, {"data_dependent": False, "max_len": 16, "initial_sigma": THESIS_START}),
    "attn-gaussian-dd": (ba.Gaussian, {"data_dependent": True, "max_len": 16}),
    "attn-dirichlet-approx": (ba.Dirichlet, {"data_dependent": False, "approximate": True, "initial_sharpness": 16.0}),
    "attn-dirichlet-approx-dd": (ba.Dirichlet, {"data_dependent": True, "approximate": True}),
    "attn-dirichlet": (ba.Dirichlet, {"data_dependent": False, "approximate": False, "prior_concentration": 0.99}),
    "attn-dirichlet-dd": (ba.Dirichlet, {"data_dependent": True, "approximate": False}),
    "bam-wf": (ba.Weibull, {"k": 10.0}),
    "bam-wc": (ba.Weibull, {"k": 10.0}),
    "bam-lf": (ba.LogNormal, {"sigma": 0.1}),
    "bam-lc": (ba.LogNormal, {"sigma": 0.1}),
    "bam-wc-detached": (ba.Weibull, {"k": 10.0}),
    "bam-wc-sampled-kl": (SampledKLWeibull, {"k": 10.0}),
    "bam-no-kl": (ba.Weibull, {"k": 10.0}),
}
PRIORS = {
    "bam-wf": ba.GammaPrior,
    "bam-wc": ba.ContextualGamma,
    "bam-lf": ba.LogNormalPrior,
    "bam-lc": ba.ContextualLogNormal,
    "bam-wc-detached": ba.ContextualGamma,
    "bam-wc-sampled-kl": ba.ContextualGamma,
    "bam-no-kl": ba.GammaPrior,
}


def method_of(name: str, **options: Any) -> AttentionMethod:
    method = METHODS.create(name, dataclasses.replace(METHODS.entry(name).options, **options))
    assert isinstance(method, AttentionMethod)
    return method


@pytest.mark.parametrize("name", ATTENTION)
def test_the_posterior_is_what_the_name_says(name: str) -> None:
    kind, values = EXPECTED[name]
    posterior: Any = method_of(name).posterior(TASK)
    assert type(posterior) is kind
    assert {key: getattr(posterior, key) for key in values} == values
    if name in PRIORS:
        assert type(posterior.prior) is PRIORS[name]


@pytest.mark.parametrize("name", ATTENTION)
def test_options_reach_the_posterior(name: str) -> None:
    changed = {
        "prior_sigma": 0.5,
        "initial_sigma": 0.25,
        "prior_concentration": 0.7,
        "initial_sharpness": 3.0,
        "k": 4.0,
        "sigma": 0.2,
    }
    known = {field.name for field in dataclasses.fields(METHODS.entry(name).options)}
    options = {key: value for key, value in changed.items() if key in known}
    posterior: Any = method_of(name, **options).posterior(TASK)
    if name.startswith("bam-l"):
        assert posterior.prior.sigma == options.pop("prior_sigma")
    assert {key: getattr(posterior, key) for key in options} == options


@pytest.mark.parametrize("name", ATTENTION)
def test_every_layer_is_random_and_its_kl_is_in_the_objective(name: str) -> None:
    method = method_of(name, kl_weight=0.3, kl_anneal=0.5)
    model = method.build(TASK)
    batch = tuple(tensor[:6] for tensor in TASK.load().train)
    with ba.record() as latents:
        nll = TASK.nll(model, batch)
    assert len(latents.local_terms) == 2
    expected = {"sum": latents.local_kl.mean()}
    expected["mean"] = torch.stack([term.kl / term.elements for term in latents.local_terms]).mean()
    kl = expected["mean" if name.startswith("bam-") else "sum"]
    for done, factor in ((0, 0.0), (1, 0.15), (2, 0.3), (4, 0.3)):
        objective = method.objective(nll, latents, Progress(done, 4), dataset_size=100)
        torch.testing.assert_close(objective.loss, nll.mean() + factor * kl)
    assert (method.predict([model], TASK, batch[0], samples=5).samples.std(0) > 0).all()


def test_uniform_attention_starts_next_to_the_dirichlet_prior() -> None:
    """The default start costs next to nothing, the thesis's has a KL beyond any likelihood."""

    def kl(options: DirichletOptions) -> float:
        posterior = METHODS.create("attn-dirichlet", options)
        assert isinstance(posterior, AttentionMethod)
        query = torch.zeros(1, 1, 16, 8)  # uniform attention over 16 keys
        with ba.record() as latents:
            ba.attend(query, query, query, posterior.posterior(TASK).bind(num_heads=1, head_dim=8))
        return latents.local_kl.item() / 16

    assert kl(DirichletOptions()) < 0.1
    assert kl(DirichletOptions(initial_sharpness=THESIS_START)) > 1e5


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_an_impossible_anneal_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="kl_anneal must lie in"):
        GaussianOptions(kl_anneal=share)


def _gradients(name: str, **options: Any) -> tuple[ba.Elbo, torch.nn.Module]:
    method = method_of(name, **options)
    torch.manual_seed(3)
    model = method.build(TASK)
    torch.manual_seed(4)
    with ba.record() as latents:
        nll = TASK.nll(model, tuple(tensor[:6] for tensor in TASK.load().train))
    objective = method.objective(nll, latents, Progress(1, 2), dataset_size=100)
    objective.backward()
    return objective, model


def test_bams_annealing_is_the_sigmoid_of_rho_times_the_minibatch() -> None:
    """Whatever the length of the training; on a graph, where an epoch is a minibatch, tables say it by the share of the training."""
    method, on_graphs = method_of("bam-wc", kl_rho=0.1), method_of("bam-wc", kl_sigmoid=0.1 * 400)
    nll = torch.zeros(6)
    with ba.record() as latents:
        TASK.nll(method.build(TASK), tuple(tensor[:6] for tensor in TASK.load().train))
    for step, expected in ((0, 0.5), (5, 0.6224593), (30, 0.9525741), (399, 1.0)):
        weights = [
            each.objective(nll, latents, Progress(step, steps), dataset_size=100).kl_weight
            for each, steps in ((method, 400), (method, 9000), (on_graphs, 400))
        ]
        assert weights == pytest.approx([expected] * 3)
    for name in ("kl_sigmoid", "kl_rho"):
        with pytest.raises(ValueError, match=f"{name} must not be negative, got -1.0"):
            GaussianOptions(**{name: -1.0})


@pytest.mark.parametrize("k", [1.0, 3.0])
def test_the_kl_of_bam_as_printed(k: float) -> None:
    """Equations 2 to 5 for one row, by hand: raw scores for log E[S], and α = Ψ, the softmax of the network over the keys."""
    beta, query, keys = 0.4, torch.randn(1, 1, 1, 8), torch.randn(1, 1, 5, 8)
    found = []
    for form in ("code", "printed"):
        method = method_of("bam-wc", k=k, beta=beta, kl_form=form)
        assert isinstance(method, AttentionMethod)
        torch.manual_seed(1)
        posterior = method.posterior(TASK).bind(num_heads=1, head_dim=8)
        with ba.record() as latents:
            ba.attend(query, keys, keys, posterior)
        found.append(latents.local_kl[0])
    psi = posterior.prior.share_logits(keys).flatten().softmax(0)  # pyright: ignore
    scores = (query[0, 0] @ keys[0, 0].T).squeeze(0) / math.sqrt(8)
    posterior_mean, euler = scores.exp(), 0.5772156649
    log_scale = scores - math.lgamma(1 + 1 / k)
    by_hand = euler * psi / k - psi * log_scale + math.log(k) + beta * posterior_mean - euler - 1
    by_hand = (by_hand - psi * math.log(beta) + psi.lgamma()).sum()
    torch.testing.assert_close(found[1], by_hand, rtol=1e-4, atol=1e-4)
    assert abs(float((found[0] - by_hand).detach())) > 0.1, "the code's is another"


def test_the_lognormal_kl_as_printed_has_the_share_for_its_location() -> None:
    query, keys, sigma, prior_sigma = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 5, 8), 0.5, 2.0
    method = method_of("bam-lc", sigma=sigma, prior_sigma=prior_sigma, kl_form="printed")
    assert isinstance(method, AttentionMethod)
    posterior = method.posterior(TASK).bind(num_heads=1, head_dim=8)
    with ba.record() as latents:
        ba.attend(query, keys, keys, posterior)
    psi = posterior.prior.share_logits(keys).flatten().softmax(0)  # pyright: ignore
    scores = (query[0, 0] @ keys[0, 0].T).squeeze(0) / math.sqrt(8)
    drawn = torch.distributions.Normal(scores - sigma**2 / 2, sigma)
    by_hand = torch.distributions.kl_divergence(drawn, torch.distributions.Normal(psi, prior_sigma)).sum()
    torch.testing.assert_close(latents.local_kl[0], by_hand, rtol=1e-4, atol=1e-4)


def test_a_detached_kl_is_reported_and_trains_nothing() -> None:
    """The released code for language models: the prior's network has no gradient, the rest that of the likelihood alone."""
    with_kl, trained = _gradients("bam-wc")
    detached, untrained = _gradients("bam-wc-detached")
    torch.testing.assert_close(with_kl.loss, detached.loss)
    for (name, first), second in zip(trained.named_parameters(), untrained.parameters(), strict=True):
        if "prior" in name:
            assert first.grad is not None
            assert first.grad.abs().max() > 0
            assert second.grad is None
    assert not torch.equal(trained.embedding.weight.grad, untrained.embedding.weight.grad)
    none, _ = _gradients("bam-wc", kl_weight=0.0)
    torch.testing.assert_close(none.loss, detached.nll)
    _, without = _gradients("bam-wc", kl_weight=0.0)
    torch.testing.assert_close(without.embedding.weight.grad, untrained.embedding.weight.grad)


@pytest.mark.parametrize("reduction", ["sum", "mean", "per_token", "per_query"])
def test_the_bound_of_several_draws_averages_likelihoods_and_counts_the_kl_once(reduction: str) -> None:
    task = TASKS.create("digits")
    batch = tuple(tensor[:5] for tensor in task.load().train)
    one, four = (
        METHODS.create(
            "bam-wf", dataclasses.replace(METHODS.entry("bam-wf").options, bound_samples=count, kl_reduction=reduction)
        )
        for count in (1, 4)
    )
    model = four.build(task)
    torch.manual_seed(0)
    each = torch.stack([task.nll(model, batch) for _ in range(4)])
    torch.manual_seed(0)
    with ba.record() as latents:
        nll = four.nll(task, model, batch)
    torch.testing.assert_close(nll, -(-each).exp().mean(0).log())
    with ba.record() as of_one:
        one.nll(task, model, batch)
    found, usual = (
        method.objective(nll, terms, Progress(1, 1), 100) for method, terms in ((four, latents), (one, of_one))
    )
    # BAM's KL depends on the scores alone, which later layers' draws change a little
    torch.testing.assert_close(found.loss - found.nll, usual.loss - usual.nll, rtol=0.02, atol=1e-4)
