"""Inference networks: their formulas, and that they see the whole target, and no padding."""

from __future__ import annotations

import torch

from bayesattn.alignment import SequenceInference, SetInference


def test_sequence_scores_are_bilinear_in_the_two_recurrent_states() -> None:
    network = SequenceInference(3, 4, hidden_dim=5)
    source, target = torch.randn(2, 6, 3), torch.randn(2, 7, 4)
    scores = network(source, target)
    x, h = network.source(source), network.target(target)
    for j, i in ((0, 0), (3, 5), (6, 2)):
        assert torch.allclose(scores[:, j, i], ((h[:, j] @ network.bilinear.weight.T) * x[:, i]).sum(-1), atol=1e-5)


def test_every_score_sees_the_future_of_the_target_and_no_padding() -> None:
    network = SequenceInference(3, 4, hidden_dim=5)
    source, target = torch.randn(1, 6, 3), torch.randn(1, 7, 4, requires_grad=True)
    mask = torch.arange(7).unsqueeze(0) < 5
    scores = network(source, target, torch.ones(1, 6, dtype=torch.bool), mask)
    (gradient,) = torch.autograd.grad(scores[0, 0, 0], target)
    assert (gradient[0, :5].abs().sum(-1) > 0).all()
    assert (gradient[0, 5:] == 0).all()


def test_set_scores_are_the_papers_formula_and_move_with_the_set() -> None:
    network = SetInference(memory_dim=3, query_dim=4, answer_dim=2, hidden_dim=5)
    memory, query, answer = torch.randn(2, 6, 3), torch.randn(2, 2, 4), torch.randn(2, 2, 2)
    scores = network(memory, query, answer)
    for b, j, i in ((0, 0, 0), (1, 1, 5), (1, 0, 3)):
        gated = memory[b, i] * network.memory_gate(answer[b, j]).relu()
        asked = query[b, j] * network.query_gate(answer[b, j]).relu()
        hidden = torch.tanh(network.memory_projection(gated) + network.query_projection(asked))
        assert torch.allclose(scores[b, j, i], network.score(hidden).squeeze(), atol=1e-6)
    order = torch.randperm(6)
    assert torch.allclose(network(memory[:, order], query, answer), scores[:, :, order], atol=1e-6)
