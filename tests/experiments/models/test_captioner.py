"""Att2in: cell, masks, KL, REINFORCE against enumeration, greedy and beam."""

from __future__ import annotations

import itertools

import pytest
import torch

import bayesattn as ba
from bayesattn.alignment import Hard, Marginal, Soft
from bayesattn.experiments.models.captioner import Captioner
from helpers.posterior_cases import FORMS

SIZES = {"embedding_dim": 5, "hidden_dim": 6, "attention_dim": 4, "dropout": 0.0}


def make(attention: ba.Posterior | ba.alignment.Objective | None = None, words: int = 9) -> Captioner:
    torch.manual_seed(7)
    return Captioner(words, 3, attention, **SIZES)


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return torch.randn(2, 4, 3), mask, torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]])


def test_no_noise_is_soft_attention_and_hidden_regions_change_nothing() -> None:
    regions, mask, captions = batch()
    soft = make(Soft())(regions, mask, captions)
    torch.testing.assert_close(make(ba.LogNormal(sigma=1e-7))(regions, mask, captions), soft)
    changed = regions.masked_fill(~mask.unsqueeze(-1), 50.0)
    torch.testing.assert_close(make()(changed, mask, captions), soft)
    order = torch.tensor([3, 0, 2, 1])
    torch.testing.assert_close(make()(regions[:, order], mask[:, order], captions), soft)
    assert soft[1, 2] == 0, "padding"


def test_one_step_is_the_papers_cell() -> None:
    """Written out for one image of one region: the context enters the cell alone, through the input gate."""
    model = make()
    region = torch.randn(1, 1, 3)
    word = model.embedding(torch.tensor([1]))
    inputs = torch.cat([word, torch.zeros(1, 6)], -1)
    enter, _, show = model.gates(inputs).sigmoid().chunk(3, -1)
    context = model.regions(region).relu()[:, 0]
    maxout = (model.cell(inputs) + model.context(context)).view(1, 2, 6).amax(1)
    hidden = show * torch.tanh(enter * maxout)
    expected = model.vocabulary(hidden).log_softmax(-1)[0, 4]
    found = model(region, torch.ones(1, 1, dtype=torch.bool), torch.tensor([[1, 4]]))
    torch.testing.assert_close(found, -expected.view(1, 1))


def test_the_kl_is_that_of_the_words_that_are_there() -> None:
    regions, mask, captions = batch()
    model = make(ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=0.5, hidden=3))).eval()
    with ba.record() as latents:
        model(regions, mask, captions)
    short = regions[1:, :2], mask[1:, :2], captions[1:, :3]
    with ba.record() as alone:
        model(*short)
    torch.testing.assert_close(latents.local_kl[1:], alone.local_kl)
    assert alone.local_terms[0].elements.item() == 2 * 2
    prior = model.prior_weights(regions, mask)
    assert prior is not None
    torch.testing.assert_close(prior.sum(-1), torch.ones(2))
    assert (prior[1, 2:] == 0).all()
    assert make(Soft()).prior_weights(regions, mask) is None


@pytest.mark.parametrize("baseline", ["soft", "none"])
def test_reinforce_is_unbiased(baseline: str) -> None:
    """E over the draws of the estimated gradient, enumerated: every sequence of regions is forced and weighed by its probability."""
    model = make(Hard(samples=1, baseline=baseline)).double()  # pyright: ignore[reportArgumentType]
    regions, mask, captions = (
        torch.randn(1, 3, 3).double(),
        torch.ones(1, 3, dtype=torch.bool),
        torch.tensor([[1, 5, 2]]),
    )
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    image = model._encode(regions, mask)
    exact, mean = torch.zeros((), dtype=torch.float64), [torch.zeros_like(parameter) for parameter in parameters]
    for forced in itertools.product(range(3), repeat=2):
        found = model._unroll(image, captions, _forced(forced))
        assert found.log_chosen is not None
        probability = found.log_chosen.sum().exp()
        exact = exact + probability * found.log_probabilities.sum()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "_choose", lambda image, forced=forced: _forced(forced))
            loss = model(regions, mask, captions).sum()
        torch.testing.assert_close(loss, -found.log_probabilities.sum())
        for total, part in zip(mean, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
            if part is not None:
                total += probability.detach() * part
    wanted = torch.autograd.grad(-exact, parameters, allow_unused=True)
    for total, part in zip(mean, wanted, strict=True):
        torch.testing.assert_close(total, torch.zeros_like(total) if part is None else part)


def _forced(regions: tuple[int, ...]):
    """Choices that are given in place of drawn."""
    steps = iter(regions)

    def choose(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        region = next(steps, None)
        if region is None:
            raise AssertionError("more words than choices")
        return torch.nn.functional.one_hot(torch.tensor([region]), 3).to(scores), scores.log_softmax(-1)[:, region]

    return choose


def test_hard_attention_draws_one_region_in_training_and_takes_the_likeliest_in_eval() -> None:
    regions, mask, captions = batch()
    model = make(Hard(samples=1))
    drawn = model.region_weights(regions, mask, captions)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert (drawn[1, :, 2:] == 0).all()
    repeated = (tensor.repeat_interleave(600, 0) for tensor in (regions, mask, captions))
    many = model.region_weights(*repeated)[:, 0].unflatten(0, (2, 600)).mean(1)
    soft = make(Soft()).region_weights(regions, mask, captions)[:, 0]
    torch.testing.assert_close(many, soft, atol=0.1, rtol=0)
    likeliest = model.eval().region_weights(regions, mask, captions)[:, 0]
    assert torch.equal(likeliest.argmax(-1), soft.argmax(-1))
    with ba.record() as latents:
        model(regions, mask, captions)
    assert latents.local_kl.tolist() == [0.0, 0.0]
    average = make(Hard(samples=300))(regions, mask, captions).sum(1)
    again = make(Hard(samples=300))(regions, mask, captions).sum(1)
    torch.testing.assert_close(average, again, atol=0.05, rtol=0)


@torch.no_grad()
def test_a_beam_of_one_is_greedy_and_a_wide_one_is_exhaustive() -> None:
    regions, mask, _ = batch()
    model = make(words=5).eval()
    greedy = model.caption(regions, mask, width=1, max_length=3).best()
    for example, words in enumerate(greedy):
        prefix = [1]
        for position in range(3):
            row = regions[example : example + 1], mask[example : example + 1]
            losses = torch.stack([model(*row, torch.tensor([[*prefix, word]]))[0, -1] for word in (2, 3, 4)])
            best = 2 + int(losses.argmin()) if position < 2 else 2
            if best == 2:
                break
            prefix.append(best)
        assert words == prefix[1:]
    wide = model.caption(regions, mask, width=8, max_length=3)
    every = [list(words) for length in range(3) for words in itertools.product((3, 4), repeat=length)]
    for example, words in enumerate(wide.best()):
        row = regions[example : example + 1], mask[example : example + 1]
        totals = [float(model(*row, torch.tensor([[1, *each, 2]])).sum()) for each in every]
        assert words == every[totals.index(min(totals))]
        assert wide.scores[example, 0].item() == pytest.approx(-min(totals), rel=1e-4)


@pytest.mark.parametrize("name", [name for name in FORMS if "thesis" not in name])
def test_every_posterior_trains(name: str) -> None:
    model = make(FORMS[name])
    with ba.record() as latents:
        loss = model(*batch())
    ba.elbo(loss.sum(1), latents, kl_reduction="mean", compare_gradients=False).loss.backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())
    assert model.score.weight.grad is not None


def test_objectives_that_enumerate_are_refused() -> None:
    for objective in (Marginal(), Hard()):
        with pytest.raises(
            ValueError, match=r"needs all alignments of a word, and here each depends on those before it"
        ):
            make(objective)
