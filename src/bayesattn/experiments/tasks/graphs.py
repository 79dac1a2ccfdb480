"""Classes of the nodes of one graph: Cora, CiteSeer, PubMed with GAT (BAM, table 1), and a small generated graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.experiments.data.files import DataFile
from bayesattn.experiments.data.graph import (
    Field,
    Graph,
    generated_graph,
    receptive_field,
    with_feature_noise,
    with_random_edges,
)
from bayesattn.experiments.data.planetoid import files_of, load_planetoid
from bayesattn.experiments.models.gat import GAT
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task, Training
from bayesattn.experiments.tasks.classification import figures
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.posteriors import Posterior
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.scopes.recording import kl_is_wanted
from bayesattn.support.annotations import Float, Int

THRESHOLDS = (0.01, 0.05, 0.1)
"""Of the p-value below which a prediction counts as certain."""

NOISE_LEVELS = (0.1, 0.2, 0.4, 0.6, 0.8)
"""Share of a node's words that are replaced by random ones."""
EDGE_LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Added random edges, relative to the edges that there are."""

UNLABELLED = -100


@dataclass(frozen=True)
class GraphOptions:
    """The graph attention network, and how it is tested."""

    hidden: int = 8
    """Features of each head of the first layer."""
    heads: int = 8
    """Heads of the first layer."""
    output_heads: int = 1
    """Heads of the second layer, which are averaged."""
    dropout: float = 0.6
    """Dropout of every layer's input and weights in training, unless the method has a dropout of its own."""
    robustness: bool = True
    """Also test with wrong words in the features and with random edges, five levels of each."""


class GraphTask(Task):
    """One example is the whole graph: its inputs are the number of a version of it (0: as it is), its targets a class for each node.

    The likelihood of the graph is the *mean* over the nodes of the split, as in GAT's and BAM's code.
    """

    likelihood = "categorical"

    def __init__(
        self,
        options: GraphOptions,
        load_graph: Callable[[], Graph],
        training: Training,
        files: tuple[DataFile, ...] = (),
    ):
        self.options = options
        self.dropout = options.dropout
        self.load_graph = load_graph
        self.training = training
        self.files = files

    def load(self) -> Splits:
        graph = self.load_graph()
        return Splits(*(_example(graph, nodes) for nodes in (graph.train, graph.validation, graph.test)))

    def build(self, dropout: float) -> nn.Module:
        graph, options = self.load_graph(), self.options
        network = GAT(
            graph.features.shape[1],
            graph.classes,
            options.hidden,
            options.heads,
            options.output_heads,
            dropout or self.dropout,
        )
        return OnGraph(network, graph)

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        versions, labels = batch
        nodes = _labelled(labels)
        return _mean_nll(model(versions, nodes), labels[:, nodes])

    def validation(self, model: nn.Module, batch: Examples) -> dict[str, Tensor]:
        versions, labels = batch
        nodes = _labelled(labels)
        logits, labels = model(versions, nodes), labels[:, nodes]
        counted = labels != UNLABELLED
        right = ((logits.argmax(-1) == labels) & counted).sum(1) / counted.sum(1)
        return {"validation_nll": _mean_nll(logits, labels), "validation_accuracy": right}

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        _, labels = splits.test
        nodes = (labels[0] != UNLABELLED).nonzero().squeeze(1)
        found = _test(predict, 0, nodes, labels[0, nodes])
        if self.options.robustness:
            for version, (name, _, _) in enumerate(VERSIONS, start=1):
                disturbed = _test(predict, version, nodes, labels[0, nodes])
                kept = {key: disturbed[key] for key in ("accuracy", "nll", "ece", "pavpu_0.05")}
                found |= {f"{key}_{name}": value for key, value in kept.items()}
        return Evaluation(found)


VERSIONS: list[tuple[str, Callable[[Graph, float], Graph], float]] = [
    *((f"noise_{level:g}", with_feature_noise, level) for level in NOISE_LEVELS),
    *((f"edges_{level:g}", with_random_edges, level) for level in EDGE_LEVELS),
]
"""What a trained network is tested on beside the graph as it is: name, how it is made, level."""


class OnGraph(nn.Module):
    """A network and its graph: versions of the graph in, logits of all nodes or of some out. Every entry of a batch draws its own noise.

    The logits of some nodes are computed from what these nodes can see, unless attention has a KL to be recorded: that is over all edges.
    """

    features: Tensor
    edges: Tensor

    def __init__(self, network: nn.Module, graph: Graph):
        super().__init__()
        self.network = network
        self.graph = graph
        self.register_buffer("features", graph.features, persistent=False)
        self.register_buffer("edges", graph.edges, persistent=False)
        self._disturbed: tuple[int, Graph] | None = None
        self._fields: dict[bytes, Field] = {}

    def forward(
        self, versions: Int[Tensor, " batch"], nodes: Int[Tensor, " some"] | None = None
    ) -> Float[Tensor, "batch nodes classes"]:
        if nodes is None:
            graphs = [self._of(version) for version in versions.tolist()]
            return torch.stack([self.network(graph.features, graph.edges) for graph in graphs])
        if any(versions.tolist()) or self._has_kl():
            return self.forward(versions)[:, nodes]
        field = self._field(nodes)
        return torch.stack([self.network(field.features, field.edges)[field.nodes] for _ in versions])

    def _has_kl(self) -> bool:
        return kl_is_wanted() and any(isinstance(module, Posterior) for module in self.modules())

    def _field(self, nodes: Tensor) -> Field:
        key = nodes.cpu().numpy().tobytes()
        if key not in self._fields:
            self._fields[key] = receptive_field(self._of(0), nodes, layers=2)
        return self._fields[key]

    def _of(self, version: int) -> Graph:
        here = replace(self.graph, features=self.features, edges=self.edges)
        if version == 0:
            return here
        if self._disturbed is None or self._disturbed[0] != version:
            _, make, level = VERSIONS[version - 1]
            self._disturbed = (version, make(here, level))  # kept for the other samples of the same version
        return self._disturbed[1]


def _labelled(labels: Int[Tensor, "batch nodes"]) -> Int[Tensor, " some"]:
    return (labels != UNLABELLED).any(0).nonzero().squeeze(1)


def _example(graph: Graph, nodes: Tensor) -> Examples:
    labels = torch.full((1, len(graph.labels)), UNLABELLED)
    labels[0, nodes] = graph.labels[nodes]
    return torch.zeros(1, dtype=torch.long), labels


def _mean_nll(logits: Float[Tensor, "batch nodes classes"], labels: Int[Tensor, "batch nodes"]) -> Tensor:
    nll = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=UNLABELLED, reduction="none")
    return nll.sum(1) / (labels != UNLABELLED).sum(1)


def _test(predict: Predictor, version: int, nodes: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy is the point estimate's, as in the paper; the other figures are those of the sampled prediction."""
    which = torch.full((1,), version)
    point = CategoricalPrediction(predict(which, point_estimate=True).samples[:, 0, nodes].cpu())
    sampled = CategoricalPrediction(predict(which).samples[:, 0, nodes].cpu())
    right = (point.label == labels).double()
    mean = figures(sampled.mean, labels)
    found = {
        "accuracy": right.mean().item(),
        "accuracy_of_samples": mean["accuracy"],
        "nll": -sampled.log_prob(labels).mean().item(),
        "ece": mean["ece"],
        "nll_of_point_estimate": -point.log_prob(labels).mean().item(),
    }
    # the t-test needs two samples: a model without noise gives the same one twice, and is certain of everything
    logits = sampled.samples if len(sampled.samples) > 1 else sampled.samples.expand(2, -1, -1)
    for threshold in THRESHOLDS:
        found[f"pavpu_{threshold:g}"] = metrics.pavpu(logits, accuracy=right, threshold=threshold).value
        found[f"pavpu_two_sample_{threshold:g}"] = metrics.pavpu(
            logits, accuracy=right, threshold=threshold, test="welch", on="probs"
        ).value
    return found


_TRAINING = Training(
    epochs=400,
    samples=20,
    batch_size=1,
    learning_rate=0.005,
    warmup=0.0,
    schedule="constant",
    weight_decay=5e-4,
    patience=100,
)
"""GAT's settings, and the most epochs of BAM's code."""

for _name, _words, _changes, _options in (
    ("cora", "Cora, 2,708 papers of 7 subjects", {}, GraphOptions()),
    ("citeseer", "CiteSeer, 3,327 papers of 6 subjects", {}, GraphOptions()),
    (
        "pubmed",
        "PubMed, 19,717 papers of 3 subjects",
        {"learning_rate": 0.01, "weight_decay": 1e-3},
        GraphOptions(output_heads=8),
    ),
):
    TASKS.add(
        _name,
        f"{_words}: GAT on the public split",
        _options,
        partial(
            GraphTask,
            load_graph=partial(load_planetoid, _name),
            training=replace(_TRAINING, **_changes),
            files=files_of(_name),
        ),
    )
TASKS.add(
    "blocks",
    "a generated graph of 100 nodes in 3 blocks: GAT, small and without files",
    GraphOptions(),
    partial(GraphTask, load_graph=generated_graph, training=_TRAINING),
)
