"""Nodes of one graph, on the generated one: likelihood, validation, figures, samples that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("torch_geometric", reason="needs the graphs extra: pip install 'bayesattn[graphs]'")

import bayesattn as ba
from bayesattn import metrics
from bayesattn.experiments.data.graph import generated_graph, undirected
from bayesattn.experiments.models.gat import GAT
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.graphs import VERSIONS, GraphOptions, OnGraph

TASK = TASKS.create("blocks")
GRAPH = generated_graph()


def test_the_likelihood_is_the_mean_over_the_nodes_of_the_split() -> None:
    model = TASK.build(0.0).eval()
    splits = TASK.load()
    logits = model(torch.zeros(1, dtype=torch.long))[0]
    for examples, nodes in ((splits.train, GRAPH.train), (splits.validation, GRAPH.validation)):
        expected = F.cross_entropy(logits[nodes], GRAPH.labels[nodes])
        torch.testing.assert_close(TASK.nll(model, examples), expected[None])
    validation = TASK.validation(model, splits.validation)
    right = (logits.argmax(-1) == GRAPH.labels)[GRAPH.validation].float().mean()
    torch.testing.assert_close(validation["validation_accuracy"], right[None])
    torch.testing.assert_close(validation["validation_nll"], TASK.nll(model, splits.validation))


def test_samples_are_drawn_apart_although_they_are_folded_into_one_batch() -> None:
    model = ba.convert(TASK.build(0.0), ba.Weibull(k=1.0))
    samples = ba.predict(model, torch.zeros(1, dtype=torch.long), samples=6).samples
    assert samples.shape == (6, 1, 100, 3)
    assert (samples.std(0) > 0).float().mean() > 0.99
    point = ba.predict(model, torch.zeros(1, dtype=torch.long), point_estimate=True).samples
    assert torch.equal(point[0], model.eval()(torch.zeros(1, dtype=torch.long)))


def test_the_methods_dropout_replaces_the_tasks() -> None:
    assert TASK.build(0.0).network.first.dropout == 0.6  # pyright: ignore
    assert TASK.build(0.3).network.first.dropout == 0.3  # pyright: ignore
    assert TASK.build(0.3).network.first.lin.dropout_of_input.p == 0.3  # pyright: ignore


def test_figures_of_a_known_prediction() -> None:
    """Accuracy is the point estimate's; PAvPU takes it and the samples; the rest is that of the mean of the samples."""
    task = TASKS.create("blocks", GraphOptions(robustness=False))
    splits = task.load()
    test = GRAPH.test
    point = torch.zeros(1, 1, 100, 3)
    point[0, 0, test, GRAPH.labels[test]] = 5.0
    point[0, 0, test[:10], (GRAPH.labels[test[:10]] + 1) % 3] = 9.0  # ten are wrong
    samples = point + torch.randn(7, 1, 100, 3)

    def predict(versions: torch.Tensor, point_estimate: bool = False) -> ba.CategoricalPrediction:
        assert versions.tolist() == [0]
        return ba.CategoricalPrediction(point if point_estimate else samples)

    found = task.evaluate(predict, splits).metrics
    assert found["accuracy"] == pytest.approx(1 - 10 / len(test))
    probabilities = samples[:, 0, test].softmax(-1).mean(0)
    nll = -probabilities[torch.arange(len(test)), GRAPH.labels[test]].log().mean()
    assert found["nll"] == pytest.approx(nll.item(), rel=1e-5)
    right = torch.ones(len(test)).index_fill(0, torch.arange(10), 0.0)
    for level in (0.01, 0.05, 0.1):
        expected = metrics.pavpu(samples[:, 0, test], accuracy=right, threshold=level).value
        assert found[f"pavpu_{level:g}"] == expected


def test_a_model_without_noise_is_certain_of_everything(tmp_path: Path) -> None:
    found = run(configure("blocks", "gat", training={"epochs": 3, "samples": 4}), tmp_path)["metrics"]
    assert found["pavpu_0.05"] == found["accuracy"]


def test_the_graph_is_learned_stops_early_and_is_loaded_again(tmp_path: Path) -> None:
    options: dict[str, Any] = {"k": 10.0, "prior_over": "all", "samples_dropout": True}
    training = {"epochs": 120, "samples": 4, "patience": 20, "learning_rate": 0.02}
    config = configure("blocks", "bam-wc", training=training, method_options=options)
    found = run(config, tmp_path)["metrics"]
    assert found["accuracy"] > 0.7
    assert found["accuracy_noise_0.8"] < found["accuracy"]
    assert {f"pavpu_0.05_{name}" for name, _, _ in VERSIONS} < set(found)
    loaded = load_run(tmp_path / config.name)
    point = loaded.method.point_estimate(loaded.models, loaded.task, torch.zeros(1, dtype=torch.long))
    right = (point.label[0] == GRAPH.labels)[GRAPH.test].double().mean().item()  # pyright: ignore
    assert right == found["accuracy"]


@pytest.mark.parametrize("is_sparse", [True, False])
def test_some_nodes_are_computed_from_what_they_see_with_the_outputs_and_gradients_of_the_whole_graph(
    is_sparse: bool,
) -> None:
    graph = generated_graph()
    line = torch.stack([torch.arange(99), torch.arange(1, 100)], 1)
    features = graph.features if is_sparse else graph.features.to_dense()
    model = OnGraph(GAT(20, 3, dropout=0.0), replace(graph, features=features, edges=undirected(line, 100)))
    nodes, version = torch.tensor([10, 50, 51]), torch.zeros(1, dtype=torch.long)
    seen: list[int] = []
    hook = model.network.register_forward_hook(lambda module, inputs, output: seen.append(inputs[1].shape[1]))
    found = []
    for logits in (model(version, nodes), model(version)[:, nodes]):
        model.zero_grad()
        logits.square().sum().backward()
        found.append([logits.detach(), *(parameter.grad for parameter in model.parameters())])
    hook.remove()
    torch.testing.assert_close(found[0], found[1])
    # three edges end at each of 9, 10, 11 and of 49, 50, 51, 52; at all but two of 100
    assert seen == [3 * 3 + 4 * 3, 298]


def test_attention_with_a_kl_trains_on_the_whole_graph_and_validates_on_what_the_nodes_see() -> None:
    line = torch.stack([torch.arange(99), torch.arange(1, 100)], 1)
    graph = replace(generated_graph(), edges=undirected(line, 100))
    model = ba.convert(OnGraph(GAT(20, 3, dropout=0.0), graph), ba.Weibull(k=1.0, prior=ba.GammaPrior(1.0, 1.0)))
    nodes, version = torch.tensor([10]), torch.zeros(1, dtype=torch.long)
    with ba.record() as of_some:
        model(version, nodes)
    with ba.record() as of_all:
        model(version)
    torch.testing.assert_close(of_some.local_terms[0].elements, of_all.local_terms[0].elements)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(version, nodes), model(version)[:, nodes])
    assert len(model._fields) == 1  # pyright: ignore
