"""Mixtures: chunks change nothing but the memory, which they bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from bayesattn.alignment import ContextMixture

WORDS = 50


class LargestTensor(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return result


def parts(source: int, target: int = 3, batch: int = 2, features: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    contexts = torch.randn(source, batch, 1, features, requires_grad=True)
    scores = torch.randn(source, batch, target, requires_grad=True)
    weight = torch.randn(features, WORDS, requires_grad=True)
    labels = torch.randint(WORDS, (batch, target))
    return contexts, scores, weight, labels


def likelihood_of(weight: Tensor, labels: Tensor, dropout: float = 0.0) -> Any:
    def likelihood(contexts: Tensor) -> Tensor:
        hidden = F.dropout(contexts, dropout).expand(*contexts.shape[:2], labels.shape[1], -1)
        log_probs = (hidden @ weight).log_softmax(-1)
        return log_probs.gather(-1, labels.expand(log_probs.shape[:-1]).unsqueeze(-1)).squeeze(-1)

    return likelihood


@pytest.mark.parametrize("kind", ["log_probability", "expectation"])
@pytest.mark.parametrize("chunk", [1, 13, 18])
def test_chunks_change_neither_value_nor_gradient(kind: str, chunk: int) -> None:
    contexts, scores, weight, labels = parts(7)
    leaves = (contexts, scores, weight)
    results = []
    for size in (10_000, chunk):
        mixture = ContextMixture(contexts, scores.log_softmax(0), size)
        value = getattr(mixture, kind)(likelihood_of(weight, labels))
        results.append((value, *torch.autograd.grad(value.square().sum(), leaves)))
    for whole, chunked in zip(*results, strict=True):
        assert torch.allclose(whole, chunked, atol=1e-4, rtol=1e-4)


def test_recomputation_uses_the_same_dropout() -> None:
    """Σ_c over one-choice chunks with dropout: the gradient must be that of the value's own dropout mask."""
    contexts, scores, weight, labels = parts(3)
    mixture = ContextMixture(contexts, scores.log_softmax(0), chunk=1)
    likelihood = likelihood_of(weight, labels, dropout=0.5)
    torch.manual_seed(5)
    value = mixture.log_probability(likelihood).sum()
    torch.rand(7)  # the generator moves on between forward and backward
    (gradient,) = torch.autograd.grad(value, weight)
    direction = torch.randn_like(weight)
    step = 1e-2
    sides = []
    with torch.no_grad():
        for sign in (1, -1):
            torch.manual_seed(5)
            moved = likelihood_of(weight + sign * step * direction, labels, dropout=0.5)
            sides.append(mixture.log_probability(moved).sum())
    assert torch.allclose((sides[0] - sides[1]) / (2 * step), (gradient * direction).sum(), rtol=2e-2)


def test_values_are_the_formulas() -> None:
    contexts, scores, weight, labels = parts(6)
    likelihood = likelihood_of(weight, labels)
    mixture = ContextMixture(contexts, scores.log_softmax(0), 12)
    log_f, p = likelihood(contexts), scores.softmax(0)
    assert torch.allclose(mixture.log_probability(likelihood), (p * log_f.exp()).sum(0).log(), atol=1e-5)
    assert torch.allclose(mixture.expectation(likelihood), (p * log_f).sum(0), atol=1e-5)


def test_all_words_at_once() -> None:
    contexts, scores, weight, labels = parts(5)
    mixture = ContextMixture(contexts, scores.log_softmax(0), 6)
    words = mixture.log_probability(lambda given: (given.expand(-1, -1, 3, -1) @ weight).log_softmax(-1))
    assert torch.allclose(words.exp().sum(-1), torch.ones(2, 3), atol=1e-5)
    picked = words.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(picked, mixture.log_probability(likelihood_of(weight, labels)), atol=1e-5)


@pytest.mark.parametrize("kind", ["log_probability", "expectation"])
def test_memory_is_bounded_by_the_chunk_and_not_by_the_source(kind: str) -> None:
    """Largest tensor, and all that is kept for the backward pass, as the source grows eightfold."""
    chunk, largest, kept = 24, {}, {}
    for source in (16, 128):
        contexts, scores, weight, labels = parts(source)
        saved: dict[int, int] = {}

        def note(tensor: Tensor, saved: dict[int, int] = saved) -> Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
            return tensor

        with LargestTensor() as seen:
            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                mixture = ContextMixture(contexts, scores.log_softmax(0), chunk)
                value = getattr(mixture, kind)(likelihood_of(weight, labels)).sum()
            value.backward()
        largest[source], kept[source] = seen.elements, sum(saved.values())
    inputs = 128 * 2 * 4  # the memory itself, 128 positions of 2 examples
    assert largest[128] <= max(chunk * WORDS, inputs)
    assert largest[128] == largest[16] == chunk * WORDS
    assert kept[128] - kept[16] < (128 - 16) * 2 * 3 * WORDS / 5
