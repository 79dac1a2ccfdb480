"""Converted PyTorch Geometric layers."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba

pytest.importorskip("torch_geometric", reason="needs the graphs extra: pip install 'bayesattn[graphs]'")

from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, Sequential, TransformerConv

LAYERS: dict[str, Any] = {"GATConv": GATConv, "GATv2Conv": GATv2Conv, "TransformerConv": TransformerConv}
every_layer = pytest.mark.parametrize("name", LAYERS)
NODES = 12


def graph() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    edges = torch.stack(
        [torch.randint(0, NODES, (40,), generator=generator), torch.randint(0, 9, (40,), generator=generator)]
    )
    return torch.randn(NODES, 6, generator=generator), edges, torch.randn(40, 3, generator=generator)


@every_layer
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_softmax_gives_the_original(name: str, flow: str, edge_dim: int | None) -> None:
    layer = LAYERS[name](6, 4, heads=3, edge_dim=edge_dim, flow=flow, concat=False)
    keys = list(layer.state_dict())
    x, edges, attributes = graph()
    inputs = (x, edges) if edge_dim is None else (x, edges, attributes)
    expected = layer(*inputs)
    assert ba.convert(layer, ba.Softmax()) is layer
    assert list(layer.state_dict()) == keys
    torch.testing.assert_close(layer(*inputs), expected)
    torch.testing.assert_close(copy.deepcopy(layer)(*inputs), expected)
    output, (index, weights) = layer(*inputs, return_attention_weights=True)
    torch.testing.assert_close(output, expected)
    queries = index[1] if flow == "source_to_target" else index[0]
    sums = torch.zeros(NODES, 3).index_add(0, queries, weights)
    torch.testing.assert_close(sums[queries.unique()], torch.ones(len(queries.unique()), 3))
    ba.revert(layer)
    assert type(layer) is LAYERS[name]
    assert torch.equal(layer(*inputs), expected)


@every_layer
def test_the_kl_is_that_of_the_layers_scores_and_keys(name: str) -> None:
    """With one edge for each target the weight is 1 whatever the noise, and the prior's share too."""
    layer = ba.convert(LAYERS[name](6, 4, heads=3), ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=0.5)))
    x, _, _ = graph()
    edges = torch.tensor([[0], [0]])  # GAT adds the self-loops itself
    with ba.record() as latents:
        layer(x, edges)
    rows = NODES if name.startswith("GAT") else 1
    weibull = torch.distributions.Weibull(torch.tensor([1 / math.gamma(1.5)]), torch.tensor([2.0]))  # of mean 1
    per_pair = torch.distributions.kl_divergence(
        weibull, torch.distributions.Gamma(torch.tensor([0.5]), torch.tensor([0.5]))
    )
    torch.testing.assert_close(latents.local_kl, per_pair * rows * 3)


@every_layer
def test_noise_stays_in_the_neighbourhood_and_the_prior_is_trained(name: str) -> None:
    layer = ba.convert(LAYERS[name](6, 4, heads=3), ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=1.0, over="all")))
    x, edges, _ = graph()
    changed = x.clone()
    changed[11] = 50.0
    outputs = []
    for features in (x, changed):
        torch.manual_seed(1)
        with ba.record() as latents:
            outputs.append(layer(features, edges))
    touched = set(edges[1, edges[0] == 11].tolist()) | {11}
    assert touched < set(range(NODES))
    same = (outputs[0] == outputs[1]).all(1)
    assert {node for node in range(NODES) if not same[node]} == touched
    latents.local_kl.sum().backward()
    assert layer.posterior.prior.network.inner.weight.grad.abs().max() > 0


def test_two_kinds_of_nodes() -> None:
    """Bipartite graphs: the keys are the source nodes'."""
    for cls in (GATConv, GATv2Conv, TransformerConv):
        more = {} if cls is TransformerConv else {"add_self_loops": False}
        layer: Any = cls((6, 5), 4, heads=2, **more)
        x = (torch.randn(9, 6), torch.randn(3, 5))
        edges = torch.stack([torch.randint(0, 9, (20,)), torch.randint(0, 3, (20,))])
        expected = layer(x, edges)
        ba.convert(layer, ba.LogNormal(sigma=1e-9, prior=ba.ContextualLogNormal()))
        with ba.record() as latents:
            torch.testing.assert_close(layer(x, edges), expected)
        assert latents.local_terms[0].elements.item() == 2 * 20


def test_a_network_is_converted_by_name() -> None:
    model = Sequential("x, edges", [(GATConv(6, 4, heads=2), "x, edges -> x"), (GATv2Conv(8, 3), "x, edges -> x")])
    ba.convert(model, ba.Weibull(k=2.0), where="last")
    x, edges, _ = graph()
    with ba.record() as latents:
        first, second = model(x, edges), model(x, edges)
    assert not torch.equal(first, second)
    assert len(latents.local_terms) == 2
    assert len(latents.by_layer(model)) == 1


def test_a_sparse_adjacency_matrix_is_refused() -> None:
    layer = ba.convert(TransformerConv(6, 4), ba.Weibull(k=2.0))
    x, edges, _ = graph()
    adjacency = torch.sparse_coo_tensor(edges.flip(0), torch.ones(40), (NODES, NODES), check_invariants=True).coalesce()
    with pytest.raises(TypeError, match=r"takes edge_index as a tensor \[2, edges\].*to_edge_index"):
        layer(x, adjacency)


def test_subclasses_and_other_layers_are_refused() -> None:
    class Own(GATConv):
        pass

    with pytest.raises(ValueError, match="Own is a subclass of a PyTorch Geometric layer"):
        ba.convert(nn.ModuleList([Own(6, 4)]), ba.Weibull(k=2.0))
    with pytest.raises(
        ValueError, match=r"no attention layer that can be converted.*GATConv, GATv2Conv, TransformerConv"
    ):
        ba.convert(nn.ModuleList([GCNConv(6, 4)]), ba.Weibull(k=2.0))
