"""The translation model: its decoder against a plain loop, its objectives, prediction, beam, and that it learns to align."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.alignment import OBJECTIVES, Marginal, Relaxed, Soft, Variational, objective_by_name
from bayesattn.experiments.models.seq2seq import Seq2Seq, perplexity

SIZES: dict[str, Any] = {
    "embedding_dim": 6,
    "encoder_dim": 5,
    "decoder_dim": 7,
    "attention_dim": 4,
    "inference_dim": 3,
}
SOURCE = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
TARGET = torch.tensor([[1, 3, 4, 5, 2], [1, 6, 2, 0, 0]])


def small(attention: Any = None, **options: Any) -> Seq2Seq:
    torch.manual_seed(0)
    model = Seq2Seq(9, 8, attention, **{**SIZES, **options})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)  # weights large enough for alignments to matter
    return model


@pytest.fixture(params=[*OBJECTIVES, "weibull", "lognormal", "dirichlet"])
def attention(request: pytest.FixtureRequest) -> Any:
    if request.param in OBJECTIVES:
        return objective_by_name(request.param)
    return ba.posterior_by_name(request.param)


def by_hand(model: Seq2Seq) -> tuple[Tensor, Tensor]:
    """The marginal's and soft attention's log p of the first example's tokens, step by step."""
    memory = model.encoder(model.source_embedding(SOURCE[:1]))[0]
    hidden, cell, context = torch.zeros(7), torch.zeros(7), torch.zeros(10)
    marginal, soft = [], []
    decoder = model.decoder
    for before, word in itertools.pairwise(TARGET[0]):
        inputs = torch.cat([model.target_embedding(before), context])
        hidden, cell = decoder.cells[0](inputs[None], (hidden[None], cell[None]))
        hidden, cell = hidden[0], cell[0]
        scores = torch.stack(
            [decoder.score(torch.tanh(decoder.query_projection(hidden) + decoder.key_projection(m))) for m in memory]
        )
        p = scores.squeeze(-1).softmax(0)

        def words(context: Tensor, hidden: Tensor = hidden) -> Tensor:
            readout = torch.tanh(model.query_readout(hidden) + model.context_readout(context))
            return model.vocabulary(readout).softmax(-1)

        context = p @ memory
        marginal.append(sum(p[i] * words(memory[i])[word] for i in range(len(memory))).log())
        soft.append(words(context)[word].log())
    return torch.stack(marginal), torch.stack(soft)


def test_likelihoods_are_those_of_a_plain_loop() -> None:
    model = small(Marginal(), dropout=0.0)
    marginal, soft = by_hand(model)
    assert (marginal - soft).abs().max() > 0.01
    assert torch.allclose(-model(SOURCE, TARGET)[0], marginal, atol=1e-5)
    assert torch.allclose(model.log_likelihood(SOURCE, TARGET)[0], marginal, atol=1e-5)
    model.objective = Soft()
    assert torch.allclose(-model(SOURCE, TARGET)[0], soft, atol=1e-5)
    assert torch.allclose(model.log_likelihood(SOURCE, TARGET)[0], soft, atol=1e-5)


def test_padding_changes_nothing(attention: Any) -> None:
    model = small(attention).eval()
    with ba.record() as together:
        nll = model(SOURCE, TARGET)
    with ba.record() as alone:
        short = model(SOURCE[1:, :2], TARGET[1:, :3])
    assert torch.allclose(nll[1, :2], short[0], atol=1e-5)
    assert (nll[1, 2:] == 0).all()
    assert torch.allclose(together.local_kl[1], alone.local_kl[0], atol=1e-4)
    (term,) = together.local_terms
    assert term.tokens.tolist() == [4.0, 2.0]
    assert term.elements.tolist() == [16.0, 4.0]


def test_everything_that_a_training_step_should_reach_gets_a_gradient(attention: Any) -> None:
    model = small(attention)
    with ba.record() as latents:
        nll = model(SOURCE, TARGET)
    ba.elbo(nll, latents).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


def test_autocast_keeps_loss_and_kl_in_float32(attention: Any) -> None:
    model = small(attention, layers=2).eval()
    with ba.record() as exact:
        reference = model(SOURCE, TARGET)
    with torch.autocast("cpu", torch.bfloat16), ba.record() as latents:
        nll = model(SOURCE, TARGET)
    assert nll.dtype == latents.local_kl.dtype == torch.float32
    assert torch.allclose(nll, reference, rtol=0.1, atol=0.1)
    assert torch.allclose(latents.local_kl, exact.local_kl, rtol=0.1, atol=0.1)


def test_drawn_weights_are_used_and_fed_back() -> None:
    model = small(ba.Weibull(k=1.0), dropout=0.0)
    first, second = model(SOURCE, TARGET), model(SOURCE, TARGET)
    assert not torch.equal(first, second)
    model.eval()
    soft = small(Soft(), dropout=0.0)
    assert torch.allclose(model(SOURCE, TARGET), soft(SOURCE, TARGET), atol=1e-6)
    with ba.sampling(torch.Generator().manual_seed(1)):
        drawn = model(SOURCE, TARGET)
    with ba.sampling(torch.Generator().manual_seed(1)):
        assert torch.equal(model(SOURCE, TARGET), drawn)


def test_k_max_with_the_whole_source_is_exact_and_with_one_is_not(attention: Any) -> None:
    model = small(attention).eval()

    def value(k_max: int | None) -> Tensor:
        torch.manual_seed(3)
        with torch.no_grad():
            return model.log_likelihood(SOURCE, TARGET, k_max)

    assert torch.allclose(value(4), value(None), atol=1e-5)
    assert (value(1) - value(None)).abs().max() > 1e-3


def test_a_model_trained_by_soft_attention_is_tested_as_the_latent_mixture_of_the_k_largest(attention: Any) -> None:
    """Σ_k p_k f(k) over the two most probable positions, by hand: f(k) is the model with all weight on position k."""
    model = small(attention).eval()
    source, target = SOURCE[:1], TARGET[:1, :2]  # one target token: nothing has been fed back
    with torch.no_grad():
        prior = model.alignments(source, target)[0][0, 0]
        encoded = model._encode(model.source_embedding(source), source)
        query = model.decoder(model.target_embedding(target[:, :-1]), encoded).queries[0, 0]
        hidden = [torch.tanh(model.query_readout(query) + model.context_readout(at)) for at in encoded.memory[0]]
        of_each = torch.stack([model.vocabulary(each).softmax(-1)[target[0, 1]] for each in hidden])
        largest = prior.topk(2).indices
        by_hand = (prior[largest] * of_each[largest]).sum() / prior[largest].sum()
        found = model.log_likelihood(source, target, 2, Marginal())[0, 0]
        whole = model.log_likelihood(source, target, tested_as=Marginal())[0, 0]
        average = torch.tanh(model.query_readout(query) + model.context_readout(prior @ encoded.memory[0]))
        soft = model.log_likelihood(source, target, tested_as=Soft())[0, 0]
    torch.testing.assert_close(found.exp(), by_hand)
    torch.testing.assert_close(whole.exp(), prior @ of_each)
    torch.testing.assert_close(soft, model.vocabulary(average).log_softmax(-1)[target[0, 1]])
    assert perplexity(model, [(source, target)], 2, Marginal()) == pytest.approx(1 / float(by_hand), rel=1e-5)
    if isinstance(attention, Soft):
        own = model.log_likelihood(source, target, 2).detach()[0, 0]
        assert abs(float(own - found)) > 1e-6, "the average of contexts is not the mixture of predictions"


def test_alignments_are_distributions_over_the_source() -> None:
    model = small(Variational()).eval()
    prior, posterior = model.alignments(SOURCE, TARGET)
    assert posterior is not None
    for weights in (prior, posterior):
        assert weights.shape == (2, 4, 4)
        assert torch.allclose(weights.sum(-1), torch.ones(2, 4))
        assert (weights[1, :, 2:] == 0).all()
    assert not torch.allclose(prior, posterior, atol=0.01)
    later = TARGET.clone()
    later[0, 4] = 7  # the last word: the posterior of every token sees it, no prior does
    other_prior, other_posterior = model.alignments(SOURCE, later)
    assert other_posterior is not None
    assert torch.equal(prior, other_prior)
    assert ((posterior - other_posterior)[0].abs().amax(-1) > 1e-5).all()
    assert small(Soft()).alignments(SOURCE, TARGET)[1] is None


@pytest.mark.parametrize("attention", [Soft(), Marginal(chunk=4), ba.Weibull(5.0)], ids=["soft", "marginal", "weibull"])
def test_a_wide_beam_finds_the_translation_of_highest_score(attention: Any) -> None:
    model = small(attention).eval()
    found = model.translate(SOURCE, width=5**2, max_length=3)
    for example in range(2):
        scored = []
        for length in (1, 2, 3):
            for words in itertools.product(range(3, 8), repeat=length - 1):
                target = torch.tensor([[1, *words, 2]])
                with torch.no_grad():
                    log_p = float(model.log_likelihood(SOURCE[example : example + 1], target).sum())
                scored.append((log_p / ((6 + length) / 6), list(words)))
        score, words = max(scored)
        assert found.best()[example] == words
        assert found.scores[example, 0] == pytest.approx(score, abs=1e-4)


def test_perplexity_is_per_token_and_leaves_the_mode() -> None:
    model = small(Marginal())
    found = perplexity(model, [(SOURCE, TARGET), (SOURCE[1:, :2], TARGET[1:, :3])])
    assert model.training
    model.eval()
    both = model.log_likelihood(SOURCE, TARGET).detach()
    assert found == pytest.approx(math.exp(-float(both.sum() + both[1].sum()) / 8), rel=1e-5)
    assert perplexity(model, [(SOURCE, TARGET)], k_max=4) == pytest.approx(math.exp(-float(both.sum()) / 6), rel=1e-5)
    with pytest.raises(ValueError, match="no target token"):
        perplexity(model, [])


def test_relaxed_warm_start_leaves_the_inference_network_alone() -> None:
    model = small(Relaxed(warm_start=True))
    model(SOURCE, TARGET).sum().backward()
    assert model.inference is not None
    assert all(parameter.grad is None for parameter in model.inference.parameters())
    model.objective = Relaxed()
    model(SOURCE, TARGET).sum().backward()
    assert all(parameter.grad is not None for parameter in model.inference.parameters())


def test_messages_name_the_argument_and_the_remedy(unchecked: None) -> None:
    with pytest.raises(ValueError, match="use max_len=None"):
        small(ba.Dirichlet(max_len=10))
    with pytest.raises(TypeError, match=r"attention must be an objective such as ba\.alignment\.Marginal"):
        small("marginal")
    with pytest.raises(ValueError, match="encoder_dim must be a whole number"):
        small(encoder_dim=0)
    model = small(Soft())
    model.objective = Variational()
    with pytest.raises(ValueError, match="Variational needs an inference network, and this model was made without one"):
        model(SOURCE, TARGET)


@pytest.mark.parametrize("name", [pytest.param("marginal", marks=pytest.mark.slow), "variational-sampled"])
def test_it_learns_to_align_a_reversed_copy(name: str) -> None:
    """Target = the source reversed: the right alignment is known, and the trained prior has found it."""
    torch.manual_seed(0)
    model = Seq2Seq(12, 12, objective_by_name(name), **{**SIZES, "dropout": 0.0} | dict.fromkeys(SIZES, 32))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        source = torch.randint(3, 12, (32, 4))
        ends = torch.full((32, 1), 1), torch.full((32, 1), 2)
        target = torch.cat([ends[0], source.flip(1), ends[1]], 1)
        with ba.record() as latents:
            nll = model(source, target)
        optimiser.zero_grad()
        ba.elbo(nll, latents).backward()
        optimiser.step()
    model.eval()
    source = torch.stack([torch.randperm(9)[:4] + 3 for _ in range(50)])
    target = torch.cat([torch.full((50, 1), 1), source.flip(1), torch.full((50, 1), 2)], 1)
    assert perplexity(model, [(source, target)]) < 1.5
    translated = model.translate(source, width=3, max_length=8).best()
    assert sum(found == wanted for found, wanted in zip(translated, source.flip(1).tolist(), strict=True)) >= 40
