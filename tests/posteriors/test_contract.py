"""What must hold for every posterior in every form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.posteriors.rows import DenseRows
from helpers.posterior_cases import FORMS, MAX_LEN

BATCH, HEADS, QUERIES, KEYS, FEATURES = 2, 3, 4, 5, 6


def bound(name: str) -> ba.Posterior:
    return FORMS[name].bind(num_heads=HEADS, head_dim=FEATURES).double()


def inputs() -> tuple[Tensor, Tensor]:
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    keys = torch.randn(BATCH, HEADS, KEYS, FEATURES, dtype=torch.float64)
    return scores, keys


def rows_with_mask() -> DenseRows:
    """The second example has two keys of padding, its first query may attend to nothing, its last query is padding."""
    allowed = torch.ones(BATCH, 1, QUERIES, KEYS, dtype=torch.bool)
    allowed[1, :, :, 3:] = False
    allowed[1, :, 0] = False
    counted = torch.ones(BATCH, QUERIES, dtype=torch.bool)
    counted[1, -1] = False
    return DenseRows((BATCH, HEADS, QUERIES, KEYS), allowed, counted)


@pytest.mark.parametrize("name", FORMS)
def test_kl_gradient_is_its_finite_difference(name: str) -> None:
    posterior, rows = bound(name), rows_with_mask()
    scores, keys = inputs()
    parameters = [scores.requires_grad_(), keys.requires_grad_(), *posterior.parameters()]

    def kl(scores: Tensor, keys: Tensor, *_: Tensor) -> Tensor:
        return posterior.kl(rows.fill_blocked(scores, 0.0), keys, rows)

    if name == "softmax":
        assert torch.equal(kl(scores, keys), torch.zeros(BATCH, dtype=torch.float64))
    else:
        # nothing but rounding stands between the two; the thesis's forms start where their KL is 1e5 nats
        assert torch.autograd.gradcheck(kl, parameters, rtol=1e-3, atol=1e-4, eps=1e-7, nondet_tol=0.0)


@pytest.mark.parametrize("name", FORMS)
def test_kl_counts_masked_pairs_empty_rows_and_padded_queries_out(name: str) -> None:
    posterior, rows = bound(name), rows_with_mask()
    scores, keys = inputs()
    before = posterior.kl(rows.fill_blocked(scores, 0.0), keys, rows)
    changed_scores, changed_keys = scores.clone(), keys.clone()
    changed_scores[1, :, -1] += 3.0
    changed_scores[1, :, 0] += 3.0
    changed_scores[1, :, :, 3:] += 3.0
    changed_keys[1, :, 3:] += 3.0
    after = posterior.kl(rows.fill_blocked(changed_scores, 0.0), changed_keys, rows)
    assert torch.allclose(before, after, rtol=1e-12, atol=1e-12)
    # and what is left is the KL of the two queries and three keys that remain
    small = DenseRows((1, HEADS, 2, 3))
    alone = posterior.kl(scores[1:, :, 1:3, :3], keys[1:, :, :3], small)
    if "thesis" not in name:  # the thesis's parameters are tied to positions
        assert torch.allclose(before[1:], alone, rtol=1e-10)


@pytest.mark.parametrize("name", FORMS)
def test_kl_of_a_causal_row_does_not_see_the_future(name: str) -> None:
    posterior = bound(name)
    scores = torch.randn(1, HEADS, 4, 4, dtype=torch.float64)
    keys = torch.randn(1, HEADS, 4, FEATURES, dtype=torch.float64)
    counted = torch.tensor([[True, True, False, False]])
    rows = DenseRows((1, HEADS, 4, 4), torch.ones(4, 4, dtype=torch.bool).tril()[None, None], counted)
    before = posterior.kl(rows.fill_blocked(scores, 0.0), keys, rows)
    keys[:, :, 2:] += 5.0
    assert torch.equal(before, posterior.kl(rows.fill_blocked(scores, 0.0), keys, rows))


@pytest.mark.parametrize("name", FORMS)
def test_kl_is_not_negative(name: str) -> None:
    scores, keys = inputs()
    kl = bound(name).kl(scores, keys, DenseRows((BATCH, HEADS, QUERIES, KEYS)))
    assert (kl >= 0).all()


@pytest.mark.parametrize("name", FORMS)
def test_draws_differ_repeat_with_the_seed_and_obey_a_generator(name: str) -> None:
    posterior, rows = bound(name), DenseRows((BATCH, HEADS, QUERIES, KEYS))
    scores, _ = inputs()

    def draw(seed: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        if seed is not None:
            torch.manual_seed(seed)
        return posterior.log_sample(scores, rows, generator)

    assert torch.equal(draw(seed=3), draw(seed=3))
    by_generator = draw(generator=torch.Generator().manual_seed(5))
    assert torch.equal(by_generator, draw(generator=torch.Generator().manual_seed(5)))
    if name != "softmax":
        assert not torch.equal(draw(), draw())
        assert not torch.equal(by_generator, draw(generator=torch.Generator().manual_seed(6)))


@pytest.mark.parametrize("name", FORMS)
def test_each_layer_gets_its_own_parameters_and_the_template_none(name: str) -> None:
    template = FORMS[name]
    first, second = (template.bind(num_heads=HEADS, head_dim=FEATURES) for _ in range(2))
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    if template.needs_binding:
        with pytest.raises(ValueError, match=r"bind\(num_heads"):
            ba.attend(*(torch.zeros(1, HEADS, 2, FEATURES),) * 3, template)
    assert not first.needs_binding


@pytest.mark.parametrize("name", FORMS)
def test_a_posterior_is_made_again_from_its_config(name: str) -> None:
    posterior = FORMS[name]
    again = ba.from_config(posterior.config())
    assert type(again) is type(posterior)
    assert again.config() == posterior.config()


def test_positions_beyond_the_longest_length_are_refused() -> None:
    posterior = ba.Gaussian.thesis(max_len=MAX_LEN).bind(num_heads=1, head_dim=2)
    q = torch.randn(1, 1, MAX_LEN + 1, 2)
    with pytest.raises(ValueError, match=f"longer than max_len={MAX_LEN}"):
        ba.attend(q, q, q, posterior)


def test_a_posterior_bound_for_other_sizes_is_refused() -> None:
    q = torch.randn(1, 3, 4, 8)
    with pytest.raises(ValueError, match="num_heads=2"):
        ba.attend(q, q, q, ba.Gaussian().bind(num_heads=2, head_dim=8))
    with pytest.raises(ValueError, match="head_dim=4"):
        ba.attend(q, q, q, ba.Weibull(prior=ba.ContextualGamma()).bind(num_heads=3, head_dim=4))


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ValueError, match="Did you mean 'weibull'"):
        ba.posterior_by_name("weibul")
    assert isinstance(ba.posterior_by_name("dirichlet", approximate=True), ba.Dirichlet)
