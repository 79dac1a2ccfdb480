"""A graph whose nodes have features and classes, a generated one, and what can go wrong with a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bayesattn.support import checks
from bayesattn.support.annotations import Int, Shaped


@dataclass(frozen=True)
class Graph:
    """Nodes, the edges between them, and which nodes are trained on, validate and test."""

    features: Shaped[Tensor, "nodes features"]
    """Of each node; dense or compressed sparse rows."""
    edges: Int[Tensor, "2 edges"]
    """Row 0 the source, row 1 the target, in the order of targets; every node has an edge from itself."""
    labels: Int[Tensor, " nodes"]
    """The class of each node."""
    train: Int[Tensor, " train"]
    """Nodes whose classes are trained on."""
    validation: Int[Tensor, " validation"]
    """Nodes that say when to stop."""
    test: Int[Tensor, " test"]
    """Nodes that are tested on."""

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.labels.max()) + 1


@contextmanager
def sparse_rows() -> Iterator[None]:
    """For making compressed sparse rows: without torch's remark, once in a process, that they are in beta state."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state", UserWarning)
        yield


def undirected(pairs: Int[Tensor, "pairs 2"], nodes: int) -> Int[Tensor, "2 edges"]:
    """Both directions of every pair once, and an edge from each node to itself, in the order of targets."""
    loops = torch.arange(nodes).unsqueeze(1).expand(-1, 2)
    both = torch.cat([pairs, pairs.flip(1), loops])
    ordered = torch.unique(both.flip(1), dim=0)  # rows (target, source), sorted
    return ordered.flip(1).T.contiguous()


def generated_graph(nodes: int = 100, classes: int = 3, features: int = 20, seed: int = 0) -> Graph:
    """A small graph of a stochastic block model: nodes of a class share words and mostly know each other.

    >>> generated_graph().features.shape
    torch.Size([100, 20])
    """
    checks.whole("classes", classes, minimum=2)
    checks.whole("nodes", nodes, minimum=10 * classes)
    checks.whole("features", features, minimum=classes)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % classes
    own = labels.unsqueeze(1) == torch.arange(features) % classes
    words = torch.rand(nodes, features, generator=generator) < torch.where(own, 0.5, 0.1)
    known = torch.where(labels.unsqueeze(1) == labels, 9.0 / nodes, 2.0 / nodes)
    pairs = (torch.rand(nodes, nodes, generator=generator) < known).triu(1).nonzero()
    order = torch.randperm(nodes, generator=generator)
    train = torch.cat([order[labels[order] == label][:5] for label in range(classes)])
    others = order[~torch.isin(order, train)]
    scaled = words.float() / words.sum(1, keepdim=True).clamp_min(1)
    with sparse_rows():
        scaled = scaled.to_sparse_csr()
    return Graph(
        features=scaled,
        edges=undirected(pairs, nodes),
        labels=labels,
        train=train,
        validation=others[: nodes // 4],
        test=others[nodes // 4 :],
    )


@dataclass(frozen=True)
class Field:
    """The part of a graph on which the outputs of some nodes depend."""

    features: Shaped[Tensor, "field features"]
    """Of the nodes of this part."""
    edges: Int[Tensor, "2 edges"]
    """Between them, numbered anew, in the order of targets."""
    nodes: Int[Tensor, " nodes"]
    """Where in this part the nodes are whose outputs it is for."""


def receptive_field(graph: Graph, nodes: Int[Tensor, " nodes"], layers: int) -> Field:
    """What so many layers of a graph network need for the outputs of `nodes`: every edge that a path of that length to one of them takes.

    The other nodes of the part lack edges: only the outputs of `nodes` are those of the whole graph.
    """
    source, target = graph.edges
    reached = torch.zeros(len(graph.labels), dtype=torch.bool, device=nodes.device).index_fill(0, nodes, True)
    taken = reached[target]
    for _ in range(layers - 1):
        reached = reached.index_fill(0, source[taken], True)
        taken = reached[target]
    inside, edges = torch.unique(graph.edges[:, taken], return_inverse=True)
    numbers = torch.searchsorted(inside, nodes)
    return Field(_rows(graph.features, inside), edges, numbers)


def _rows(features: Tensor, chosen: Int[Tensor, " chosen"]) -> Tensor:
    if features.layout is not torch.sparse_csr:
        return features[chosen]
    with sparse_rows():
        return features.to_sparse_coo().index_select(0, chosen).coalesce().to_sparse_csr()


def with_feature_noise(graph: Graph, share: float, seed: int = 0) -> Graph:
    """A random `share` of every node's nonzero features moved to random other places: wrong words, as many as before."""
    entries = graph.features.to_sparse_coo().cpu().coalesce()
    nodes, words = entries.indices()
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(len(words), generator=generator) < share
    random = torch.randint(0, graph.features.shape[1], (len(words),), generator=generator)
    moved = torch.stack([nodes, torch.where(wrong, random, words)])
    noisy = torch.sparse_coo_tensor(moved, entries.values(), entries.shape, check_invariants=True).coalesce()
    return replace(graph, features=noisy.to_sparse_csr().to(graph.features.device))


def with_random_edges(graph: Graph, level: float, seed: int = 0) -> Graph:
    """`level` times as many undirected edges again (self-loops not counted), between random nodes."""
    nodes = len(graph.labels)
    links = (graph.edges.shape[1] - nodes) // 2
    generator = torch.Generator().manual_seed(seed)
    added = torch.randint(0, nodes, (round(level * links), 2), generator=generator)
    pairs = torch.cat([graph.edges.T.cpu(), added])
    return replace(graph, edges=undirected(pairs, nodes).to(graph.edges.device))
