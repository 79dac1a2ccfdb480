"""The decoder: steps are its forward pass, the KL is that of one attention, K-max and draws reach what is fed back."""

from __future__ import annotations

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.models.decoder import Decoder, Source

MASK = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
TARGET_MASK = torch.tensor([[True] * 4, [True] * 3 + [False]])


def decoder(posterior: ba.Posterior, layers: int = 1) -> tuple[Decoder, Source, torch.Tensor]:
    torch.manual_seed(0)
    made = Decoder(3, 4, 6, 5, layers, 0.0, posterior)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    memory = torch.randn(2, 5, 4)
    return made, Source(memory, made.key_projection(memory), MASK), torch.randn(2, 4, 3)


@pytest.mark.parametrize("layers", [1, 2])
def test_steps_are_the_forward_pass_and_the_context_is_fed_back(layers: int) -> None:
    made, source, words = decoder(ba.Softmax(), layers)
    decoded = made(words, source)
    state = made.start(source.memory)
    for position in range(4):
        before = state[-1]
        hidden = torch.cat([words[:, position], before], -1)
        for layer, cell in enumerate(made.cells):
            hidden, _ = cell(hidden, state[2 * layer : 2 * layer + 2])
        query, scores, state = made.step(words[:, position], state, source)
        assert torch.allclose(query, hidden)
        weights = scores.masked_fill(~MASK, float("-inf")).softmax(-1)
        assert torch.allclose(state[-1], torch.einsum("bs,bsf->bf", weights, source.memory), atol=1e-6)
        assert torch.allclose(decoded.queries[:, position], query)
        assert torch.allclose(decoded.scores[:, position], scores)
        assert torch.allclose(decoded.contexts[:, position], state[-1])


def test_k_max_of_one_feeds_back_the_memory_of_the_highest_score() -> None:
    made, source, words = decoder(ba.Softmax())
    decoded = made(words, source, k_max=1)
    top = decoded.scores.masked_fill(~MASK.unsqueeze(1), float("-inf")).argmax(-1)
    expected = source.memory.gather(1, top.unsqueeze(-1).expand(-1, -1, 4))
    assert torch.allclose(decoded.contexts, expected, atol=1e-6)


def test_weights_are_drawn_in_training() -> None:
    made, source, words = decoder(ba.Weibull(k=1.0))
    assert not torch.allclose(made(words, source).contexts, made(words, source).contexts)
    made.eval()
    assert torch.equal(made(words, source).contexts, made(words, source).contexts)


def test_the_kl_is_that_of_one_attention_over_all_positions() -> None:
    made, source, words = decoder(ba.Weibull(2.0, ba.ContextualGamma(0.3, 3)))
    decoded = made(words, source)
    with ba.record() as latents:
        made.record_kl(decoded, source, TARGET_MASK)
    with ba.record() as reference:
        ba.attend_scores(
            decoded.scores.unsqueeze(1),
            source.keys.unsqueeze(1),
            source.memory.unsqueeze(1),
            made.posterior,
            MASK[:, None, None, :],
            query_mask=TARGET_MASK,
        )
    assert (latents.local_kl > 0).all()
    (ours,), (theirs,) = latents.local_terms, reference.local_terms
    for name in ("kl", "elements", "rows", "tokens"):
        assert torch.allclose(getattr(ours, name), getattr(theirs, name)), name
