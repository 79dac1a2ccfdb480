"""Attention on edges against dense attention with the adjacency matrix as its mask."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bayesattn as ba
from bayesattn.posteriors.rows import DenseRows, EdgeRows
from helpers.posterior_cases import FORMS

NODES, HEADS, FEATURES = 7, 3, 4
EDGES = torch.tensor(
    [[0, 1, 2, 3, 1, 4, 5, 0, 3, 6, 6, 2], [0, 0, 0, 0, 1, 1, 1, 2, 2, 4, 5, 5]]  # nothing reaches nodes 3 and 6
)

POSTERIORS = {
    **{name: posterior for name, posterior in FORMS.items() if getattr(posterior, "max_len", None) is None},
    "weibull-contextual-all": ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=0.5, over="all")),
    "lognormal-contextual-all": ba.LogNormal(sigma=0.7, prior=ba.ContextualLogNormal(over="all")),
}
every_posterior = pytest.mark.parametrize("name", POSTERIORS)


def bound(name: str) -> ba.Posterior:
    return POSTERIORS[name].bind(num_heads=HEADS, head_dim=FEATURES).double()


def sparse_and_dense() -> tuple[EdgeRows, DenseRows, Tensor, Tensor, Tensor]:
    """The same pairs twice, with scores as [edges, heads] and as [1, heads, nodes, nodes], and keys."""
    scores = torch.randn(EDGES.shape[1], HEADS, dtype=torch.float64)
    keys = torch.randn(NODES, HEADS, FEATURES, dtype=torch.float64)
    allowed = torch.zeros(1, 1, NODES, NODES, dtype=torch.bool)
    allowed[0, 0, EDGES[1], EDGES[0]] = True
    dense = torch.zeros(1, HEADS, NODES, NODES, dtype=torch.float64)
    dense[0, :, EDGES[1], EDGES[0]] = scores.T
    sparse_rows = EdgeRows(EDGES[1], EDGES[0], NODES, HEADS)
    return sparse_rows, DenseRows((1, HEADS, NODES, NODES), allowed), scores, dense, keys


def at_edges(dense: Tensor) -> Tensor:
    return dense[0, :, EDGES[1], EDGES[0]].T


@every_posterior
def test_the_kl_and_its_gradients_are_those_of_dense_attention(name: str) -> None:
    posterior = bound(name)
    sparse_rows, dense_rows, scores, dense, keys = sparse_and_dense()
    results = []
    for rows, values, seen in ((sparse_rows, scores, keys), (dense_rows, dense, keys.transpose(0, 1)[None])):
        values = values.clone().requires_grad_()
        posterior.zero_grad()
        kl = posterior.kl(values, seen, rows)
        if kl.requires_grad:
            kl.sum().backward()
        gradient = torch.zeros_like(values) if values.grad is None else values.grad
        results.append((kl.detach(), gradient, [w.grad for w in posterior.parameters()]))
    (sparse_kl, sparse_gradient, sparse_weights), (dense_kl, dense_gradient, dense_weights) = results
    torch.testing.assert_close(sparse_kl, dense_kl)
    torch.testing.assert_close(sparse_gradient, at_edges(dense_gradient))
    torch.testing.assert_close(sparse_weights, dense_weights)


@every_posterior
def test_weights_are_drawn_from_the_same_distribution_as_dense_ones(name: str) -> None:
    posterior = bound(name)
    sparse_rows, dense_rows, scores, dense, _ = sparse_and_dense()
    draws = 3000
    # as many copies of the graph, side by side
    offsets = NODES * torch.arange(draws).repeat_interleave(EDGES.shape[1])
    copies = EDGES.repeat(1, draws) + offsets
    sparse_rows = EdgeRows(copies[1], copies[0], NODES * draws, HEADS)
    dense_rows = DenseRows((draws, HEADS, NODES, NODES), dense_rows.allowed)
    many = scores.repeat(draws, 1)
    sparse = sparse_rows.softmax(posterior.log_sample(many, sparse_rows)).unflatten(0, (draws, -1))
    wide = dense.expand(draws, -1, -1, -1)
    drawn = dense_rows.softmax(posterior.log_sample(wide, dense_rows))
    sums = [torch.stack([weights.mean(0), weights.square().mean(0)]) for weights in (sparse, drawn)]
    expected = torch.stack([at_edges(moment[None]) for moment in sums[1]])
    torch.testing.assert_close(sums[0], expected, atol=0.04, rtol=0)  # five standard errors of a weight of variance 1/4
    node_sums = torch.zeros(NODES, HEADS, dtype=torch.float64).index_add(0, EDGES[1], sums[0][0])
    reached = torch.bincount(EDGES[1], minlength=NODES) > 0
    torch.testing.assert_close(node_sums[reached], torch.ones_like(node_sums[reached]))
    assert (node_sums[~reached] == 0).all()


def test_parameters_tied_to_positions_are_refused() -> None:
    layer = ba.nn.GraphAttention(5, FEATURES, HEADS, ba.Gaussian.thesis(12))
    with pytest.raises(ValueError, match="max_len= ties the parameters to positions, which a graph does not have"):
        layer(torch.randn(NODES, 5), EDGES)


def test_every_sum_over_rows_is_the_dense_one() -> None:
    sparse, dense, scores, wide, keys = sparse_and_dense()
    torch.testing.assert_close(sparse.sum(scores), dense.sum(wide)[0, :, :, 0].T)
    torch.testing.assert_close(sparse.softmax(scores), at_edges(dense.softmax(wide)))
    torch.testing.assert_close(sparse.log_softmax(scores), at_edges(dense.log_softmax(wide)))
    torch.testing.assert_close(sparse.sizes(scores)[:, 0], dense.sizes(wide)[0, 0, :, 0])
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(sparse.total_of_rows(one), dense.total_of_rows(one))
    torch.testing.assert_close(sparse.total_of_pairs(scores), dense.total_of_pairs(wide))
    values = keys.sum(-1)
    torch.testing.assert_close(
        sparse.keys_to_pairs(values), at_edges(dense.keys_to_pairs(values.T[None]).expand_as(wide))
    )


def test_large_scores_neither_overflow_nor_lose_their_differences() -> None:
    rows = EdgeRows(EDGES[1], EDGES[0], NODES, 1)
    scores = torch.full((EDGES.shape[1], 1), 3e4)
    scores[0] += 1.0
    weights = rows.softmax(scores)
    assert weights[0].item() == pytest.approx(torch.tensor([1.0, 0.0, 0.0, 0.0]).softmax(0)[0].item())


def test_a_batch_of_graphs_has_one_kl_for_each() -> None:
    layer = ba.nn.GraphAttention(5, FEATURES, HEADS, ba.Weibull(k=1e6, prior=ba.ContextualGamma()))
    x = torch.randn(NODES, 5)
    both = torch.cat([EDGES, EDGES[:, :7] + NODES], 1)
    graph = torch.arange(2 * NODES) // NODES
    with ba.record() as together:
        layer(torch.cat([x, x]), both, graph, num_graphs=2)
    with ba.record() as first:
        layer(x, EDGES)
    with ba.record() as second:
        layer(x, EDGES[:, :7])
    torch.testing.assert_close(together.local_kl, torch.cat([first.local_kl, second.local_kl]))
    torch.testing.assert_close(together.local_terms[0].elements, torch.tensor([12.0 * HEADS, 7.0 * HEADS]))


def test_a_prior_over_all_nodes_needs_one_graph() -> None:
    layer = ba.nn.GraphAttention(5, FEATURES, HEADS, ba.Weibull(prior=ba.ContextualGamma(over="all")))
    with pytest.raises(ValueError, match="over='all' shares its mass among all nodes of one graph"):
        layer(torch.randn(NODES, 5), EDGES, torch.zeros(NODES, dtype=torch.long), num_graphs=1)


def test_graph_attention_is_gat() -> None:
    """Against the definition, written out densely."""
    layer = ba.nn.GraphAttention(5, FEATURES, HEADS).eval()
    x = torch.randn(NODES, 5)
    nodes = (x @ layer.projection.weight.T).view(NODES, HEADS, FEATURES)
    expected = torch.zeros(NODES, HEADS, FEATURES)
    for node in range(NODES):
        neighbours = EDGES[0, EDGES[1] == node]
        if len(neighbours):
            scores = (nodes[node] * layer.target).sum(-1) + (nodes[neighbours] * layer.source).sum(-1)
            weights = F.leaky_relu(scores, 0.2).softmax(0)
            expected[node] = (weights.unsqueeze(-1) * nodes[neighbours]).sum(0)
    torch.testing.assert_close(layer(x, EDGES), expected.flatten(1))


def test_no_node_outside_the_neighbourhood_has_influence() -> None:
    layer = ba.nn.GraphAttention(5, FEATURES, HEADS, ba.Dirichlet(initial_sharpness=1e-3))
    x = torch.randn(NODES, 5)
    changed = x.clone()
    changed[6] = 100.0  # a neighbour of nodes 4 and 5 alone
    outputs = []
    for features in (x, changed):
        torch.manual_seed(1)
        outputs.append(layer(features, EDGES))
    same = (outputs[0] == outputs[1]).all(1)
    assert same.tolist() == [True, True, True, True, False, False, True]


def test_memory_is_linear_in_the_edges() -> None:
    """A dense matrix of these nodes would take 160 GB for each head."""
    nodes, edges = 200_000, 400_000
    layer = ba.nn.GraphAttention(2, 2, 1, ba.Weibull(k=5.0, prior=ba.ContextualGamma()))
    index = torch.randint(0, nodes, (2, edges))
    with ba.record() as latents:
        output = layer(torch.randn(nodes, 2), index)
    (output.sum() + latents.local_kl.sum()).backward()
    assert layer.projection.weight.grad is not None
    assert layer.projection.weight.grad.isfinite().all()
