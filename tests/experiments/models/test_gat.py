"""The graph attention network and its sparse first layer, against the same things written out."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torch_geometric", reason="needs the graphs extra: pip install 'bayesattn[graphs]'")

from bayesattn.experiments.data.graph import generated_graph, with_feature_noise
from bayesattn.experiments.models.gat import GAT
from bayesattn.experiments.models.sparse_linear import SparseLinear

GRAPH = generated_graph()
DENSE = GRAPH.features.to_dense()


def test_the_sparse_product_and_its_gradient_are_the_dense_ones() -> None:
    layer = SparseLinear(20, 7)
    upstream = torch.randn(100, 7)
    gradients = []
    for features in (GRAPH.features, DENSE):
        layer.zero_grad()
        output = layer(features)
        output.backward(upstream)
        torch.testing.assert_close(output, DENSE @ layer.weight.t())
        gradients.append(layer.weight.grad.clone())
    torch.testing.assert_close(gradients[0], gradients[1])


def test_another_matrix_is_not_taken_for_the_first() -> None:
    layer, other = SparseLinear(20, 7), with_feature_noise(GRAPH, 0.5)
    layer(GRAPH.features)
    torch.testing.assert_close(layer(other.features), other.features.to_dense() @ layer.weight.t())


def test_dropout_hits_single_entries_of_a_sparse_input() -> None:
    layer = SparseLinear(20, 20, dropout=0.6)
    torch.nn.init.eye_(layer.weight)
    dropped = layer(GRAPH.features)
    words = DENSE > 0
    assert (dropped[~words] == 0).all()
    assert (dropped[words] == 0).float().mean().item() == pytest.approx(0.6, abs=0.06)
    left = dropped != 0
    torch.testing.assert_close(dropped[left], DENSE[left] / 0.4)
    torch.testing.assert_close(layer.eval()(GRAPH.features), DENSE)


def test_the_network_is_the_papers_formula() -> None:
    """Two layers written out densely: 8 heads side by side with ELU, then the mean of the output heads."""
    network = GAT(20, 3, hidden=4, heads=2, output_heads=3).eval()
    allowed = torch.zeros(100, 100, dtype=torch.bool)
    allowed[GRAPH.edges[1], GRAPH.edges[0]] = True

    def layer(x: torch.Tensor, conv: torch.nn.Module, heads: int) -> torch.Tensor:
        nodes = (x @ conv.lin.weight.t()).view(100, heads, -1)  # pyright: ignore
        scores = (nodes * conv.att_dst).sum(-1)[:, None] + (nodes * conv.att_src).sum(-1)[None]  # pyright: ignore
        scores = torch.nn.functional.leaky_relu(scores, 0.2).masked_fill(~allowed[..., None], -torch.inf)
        return torch.einsum("ijh,jhc->ihc", scores.softmax(1), nodes)

    hidden = torch.nn.functional.elu(layer(DENSE, network.first, 2).flatten(1) + network.first.bias)
    expected = layer(hidden, network.second, 3).mean(1) + network.second.bias
    torch.testing.assert_close(network(GRAPH.features, GRAPH.edges), expected)
