"""Graphs: edges, a generated one, and disturbed ones."""

from __future__ import annotations

import pytest
import torch

from bayesattn.experiments.data.graph import generated_graph, undirected, with_feature_noise, with_random_edges

GRAPH = generated_graph()


def test_edges_are_symmetric_unique_with_loops_and_sorted_by_target() -> None:
    edges = undirected(torch.tensor([[2, 0], [0, 2], [1, 1], [2, 0]]), nodes=4)
    assert edges.tolist() == [[0, 2, 1, 0, 2, 3], [0, 0, 1, 2, 2, 3]]


def test_the_generated_graph_has_classes_that_its_edges_and_words_tell() -> None:
    source, target = GRAPH.edges
    links = source != target
    assert (GRAPH.labels[source] == GRAPH.labels[target])[links].float().mean() > 0.55  # 1/3 by chance
    assert sorted(torch.cat([GRAPH.train, GRAPH.validation, GRAPH.test]).tolist()) == list(range(100))
    assert GRAPH.labels[GRAPH.train].bincount().tolist() == [5, 5, 5]
    again = generated_graph()
    assert torch.equal(again.features.to_dense(), GRAPH.features.to_dense())
    assert not torch.equal(generated_graph(seed=1).features.to_dense(), GRAPH.features.to_dense())


def test_wrong_words_replace_their_share_and_no_more() -> None:
    graph = generated_graph(nodes=900, features=400)
    before, after = graph.features.to_dense(), with_feature_noise(graph, 0.4).features.to_dense()
    torch.testing.assert_close(after.sum(1), before.sum(1))
    kept = torch.minimum(before, after).sum() / before.sum()
    # and a word that moves may land where another one has left
    assert kept.item() == pytest.approx(0.6 + 0.4 * 0.4 * (before > 0).float().mean().item(), abs=0.01)
    assert torch.equal(with_feature_noise(graph, 0.0).features.to_dense(), before)


def test_random_edges_are_added_to_those_that_are_there() -> None:
    graph = generated_graph(nodes=900)
    before = {tuple(pair) for pair in graph.edges.T.tolist()}
    more = with_random_edges(graph, 1.0)
    after = {tuple(pair) for pair in more.edges.T.tolist()}
    links = (len(before) - 900) / 2
    assert before < after
    assert len(after) - 900 == pytest.approx(4 * links, rel=0.02)  # a few fall on others
    assert all((target, source) in after for source, target in after)
    assert torch.equal(with_random_edges(graph, 0.0).edges, graph.edges)


def test_a_graph_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="nodes must be a whole number of at least 30, got 20"):
        generated_graph(nodes=20)
