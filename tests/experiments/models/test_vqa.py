"""The bottom-up model: objectives agree where they must, masks, order, predictions that are distributions."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.alignment import OBJECTIVES, Hard, Marginal, Relaxed, Soft, Variational, objective_by_name
from bayesattn.experiments.models.vqa import BottomUpVQA

SIZES = {"embedding_dim": 5, "question_dim": 6, "hidden_dim": 8, "answer_dim": 3, "dropout": 0.0}


def make(attention: ba.Posterior | ba.alignment.Objective) -> BottomUpVQA:
    torch.manual_seed(5)
    return BottomUpVQA(10, 4, 7, attention, **SIZES)


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    return torch.randn(2, 5, 7), mask, torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([1, 3])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_predictions_are_distributions_and_hidden_regions_change_nothing(name: str) -> None:
    model = make(objective_by_name(name)).eval()
    regions, mask, words, answer = batch()
    torch.manual_seed(0)
    found = model(regions, mask, words)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(2))
    changed = regions.masked_fill(~mask.unsqueeze(-1), 50.0)
    torch.manual_seed(0)
    torch.testing.assert_close(model(changed, mask, words), found)
    with ba.record() as latents:
        loss = model.train()(regions, mask, words, answer)
    ba.elbo(loss, latents).loss.backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())
    assert (model.inference is not None) == objective_by_name(name).needs_posterior


def test_the_marginal_is_what_it_says_and_bounds_hold() -> None:
    regions, mask, words, answer = batch()
    marginal = make(Marginal()).eval()
    prior, none = marginal.alignments(regions, mask, words, answer)
    assert none is None
    by_hand = torch.zeros(2)
    for region in range(5):
        only = torch.zeros_like(mask)
        only[:, region] = True
        by_hand += prior[:, region] * marginal(regions, only, words).exp().gather(1, answer.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(marginal(regions, mask, words, answer), -by_hand.log())
    torch.testing.assert_close(marginal(regions, mask, words).gather(1, answer.unsqueeze(1)).squeeze(1), by_hand.log())
    hard = make(Hard()).eval()
    hard.load_state_dict(marginal.state_dict())
    assert (hard(regions, mask, words, answer) >= marginal(regions, mask, words, answer) - 1e-6).all()
    variational = make(Variational()).eval()
    variational.load_state_dict(marginal.state_dict(), strict=False)
    with ba.record() as latents:
        loss = variational(regions, mask, words, answer)
    assert (loss + latents.local_kl >= marginal(regions, mask, words, answer) - 1e-6).all()


def _of_two_regions(model: BottomUpVQA, joint: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """log Σ_z p(z) p(y | z) for two regions, written out; `joint` is the hidden layer of a question and a region."""
    regions, _, words, answer = (tensor[:1] for tensor in batch())
    _, query = model.question(words)
    scores = [
        model.score(torch.tanh(model.key_projection(regions[:, z]) + model.query_projection(query))) for z in (0, 1)
    ]
    prior = torch.cat(scores, 1).softmax(1)
    likelihood = [model.answers(joint(query, regions[:, z])).softmax(-1)[:, answer[0]] for z in (0, 1)]
    by_hand = (prior[:, 0] * likelihood[0] + prior[:, 1] * likelihood[1]).log()
    found = -model(regions[:, :2], torch.ones(1, 2, dtype=torch.bool), words, answer)
    torch.testing.assert_close(found, by_hand)
    return found


def test_the_likelihood_concatenates_region_and_question() -> None:
    """Deng et al., appendix B: the region "is concatenated with the question embedding and fed to a one-layer MLP" with ReLU."""
    torch.manual_seed(0)
    model = make(Marginal()).eval()
    weight = torch.cat([model.context_readout.weight, model.query_readout.weight], 1)
    assert weight.shape == (8, 7 + 6)
    assert model.context_readout.bias is None

    def concatenated(query: Tensor, region: Tensor) -> Tensor:
        return (torch.cat([region, query], 1) @ weight.T + model.query_readout.bias).relu()

    found = _of_two_regions(model, concatenated)
    torch.manual_seed(0)
    product = BottomUpVQA(10, 4, 7, Marginal(), fusion="product", **SIZES).eval()
    torch.manual_seed(0)
    other = _of_two_regions(
        product, lambda query, region: product.query_readout(query).relu() * product.context_readout(region).relu()
    )
    assert not torch.allclose(found, other)


def test_a_model_trained_by_soft_attention_is_tested_as_a_latent_mixture_and_the_other_way_round() -> None:
    regions, mask, words, _ = batch()
    soft, marginal = make(Soft()).eval(), make(Marginal()).eval()
    torch.testing.assert_close(soft(regions, mask, words, tested_as=Marginal()), marginal(regions, mask, words))
    torch.testing.assert_close(marginal(regions, mask, words, tested_as=Soft()), soft(regions, mask, words))
    best = soft.region_weights(regions, mask, words).argmax(-1)
    only = torch.nn.functional.one_hot(best, 5).bool()
    one = soft(regions, mask, words, tested_as=Marginal(), k_max=1)
    torch.testing.assert_close(one, soft(regions, only, words))
    assert not torch.allclose(soft(regions, mask, words), marginal(regions, mask, words))


def test_dropout_is_before_the_output_layer_only() -> None:
    """ "on the penultimate layer (i.e. before affine transformation into answer vocabulary)": no alignment is drawn with it."""
    regions, mask, words, answer = batch()
    for fusion, same in (("concatenation", True), ("product", False)):
        model = BottomUpVQA(10, 4, 7, Marginal(), fusion=fusion, **SIZES | {"dropout": 0.5})  # pyright: ignore[reportArgumentType]
        first, second = (model.train().alignments(regions, mask, words, answer)[0] for _ in range(2))
        assert torch.equal(first, second) == same
        assert not torch.equal(model(regions, mask, words, answer), model(regions, mask, words, answer))


def test_one_region_leaves_nothing_to_align() -> None:
    regions, _, words, answer = batch()
    one = regions[:, :1], torch.ones(2, 1, dtype=torch.bool), words
    losses = [make(objective).eval()(*one, answer) for objective in (Soft(), Marginal(), Hard())]
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(losses[0], losses[2])
    torch.testing.assert_close(make(ba.Weibull(k=1.0))(*one, answer), losses[0])


def test_a_posterior_without_noise_is_soft_attention_and_regions_have_no_order() -> None:
    regions, mask, words, answer = batch()
    soft = make(Soft())
    quiet = make(ba.LogNormal(sigma=1e-7))
    torch.testing.assert_close(quiet(regions, mask, words, answer), soft(regions, mask, words, answer))
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(soft(regions[:, order], mask[:, order], words), soft(regions, mask, words))
    weights = soft.region_weights(regions, mask, words)
    torch.testing.assert_close(weights, soft.alignments(regions, mask, words, answer)[0])
    assert (weights[1, 2:] == 0).all()


def test_the_inference_network_sees_the_answer_and_the_prior_does_not() -> None:
    regions, mask, words, answer = batch()
    model = make(Variational(samples=1)).eval()
    prior, posterior = model.alignments(regions, mask, words, answer)
    again, other = model.alignments(regions, mask, words, (answer + 1) % 4)
    torch.testing.assert_close(prior, again)
    assert posterior is not None
    assert other is not None
    assert not torch.allclose(posterior, other)
    torch.testing.assert_close(posterior.sum(-1), torch.ones(2))


def test_the_marginal_learns_where_to_look() -> None:
    """One region of four holds the answer, and the question says which."""
    torch.manual_seed(0)
    model = BottomUpVQA(8, 3, 7, Marginal(), embedding_dim=8, question_dim=16, hidden_dim=32, answer_dim=8, dropout=0.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    mask = torch.ones(64, 4, dtype=torch.bool)
    for _ in range(120):
        answers, words = torch.randint(3, (64, 4)), torch.randint(4, 8, (64, 1))
        place = torch.eye(4).expand(64, 4, 4)
        regions = torch.cat([torch.nn.functional.one_hot(answers, 3).float(), place], -1)
        answer = answers.gather(1, words - 4).squeeze(1)
        with ba.record() as latents:
            loss = model(regions, mask, words, answer)
        optimiser.zero_grad()
        ba.elbo(loss, latents).loss.backward()
        optimiser.step()
    prior, _ = model.eval().alignments(regions, mask, words, answer)
    assert float((prior.argmax(-1) == words.squeeze(1) - 4).float().mean()) > 0.9
    assert float(model(regions, mask, words, answer).detach().mean()) < 0.1 * math.log(3)


def test_an_objective_that_needs_an_inference_network_says_so() -> None:
    model = make(Soft())
    model.objective = Relaxed()
    with pytest.raises(ValueError, match="Relaxed needs an inference network, and this model was made without one"):
        model(*batch())


def test_a_contextual_prior_sees_the_regions_alone() -> None:
    regions, mask, words, answer = batch()
    model = make(ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=2.0, hidden=3)))
    prior = model.prior_weights(regions, mask)
    assert prior is not None
    torch.testing.assert_close(prior.sum(-1), torch.ones(2))
    assert (prior[1, 2:] == 0).all()
    # E over the keys of the KL's own alpha is beta times these shares
    with ba.record() as latents:
        model.eval()(regions, mask, words, answer)
    alpha, beta, k = 2.0 * prior[0], 2.0, 2.0
    log_mean = model.region_weights(regions, mask, words)[0].log()
    log_scale = log_mean - torch.lgamma(torch.tensor(1 + 1 / k))
    euler = 0.5772156649
    expected = (
        euler * alpha / k - alpha * log_scale + math.log(k) + beta * log_mean.exp() - euler - 1 - alpha * math.log(beta)
    ) + alpha.lgamma()
    torch.testing.assert_close(latents.local_kl[0], expected.sum(), rtol=1e-4, atol=1e-4)
    assert make(ba.Weibull(k=2.0)).prior_weights(regions, mask) is None
