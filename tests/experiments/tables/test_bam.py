"""Tables of BAM on graphs and language models: the paper's figures and hyper-parameters, budgets, runs that tables share."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Published
from bayesattn.experiments.tables.printing import as_markdown
from bayesattn.experiments.tables.results import TableResults, read
from bayesattn.experiments.tables.summary import summarise

RESULTS = Path(__file__).parents[3] / "results"


def options(task: str, row: str, table: str = "bam-1", budget: str = "paper") -> Any:
    (config,) = TABLES[table].configs(budget, seeds=1, tasks=[task], methods=[row])
    return config.method_options


def test_published_figures_are_the_papers() -> None:
    graphs, language = TABLES["bam-1"].published(), TABLES["bam-5"].published()
    assert graphs["pubmed", "accuracy_percent", "gat"] == Published(77.26, None)
    assert graphs["citeseer", "accuracy_percent", "bam-wc"] == Published(73.52, 0.4)
    assert language["mrpc", "glue_score", "mle"] == Published(86.5, None)
    assert language["cola", "glue_score", "bam-wc"] == Published(55.8, None)


@pytest.mark.parametrize(
    ("graph", "k", "beta", "alpha", "rho"), [("cora", 1, 1e-10, 1e-15, 0.2), ("citeseer", 100, 1e-15, 1e-7, 0.1)]
)
def test_the_papers_hyper_parameters_on_graphs(graph: str, k: float, beta: float, alpha: float, rho: float) -> None:
    fixed = options(graph, "bam-wf")
    assert (fixed.k, fixed.beta, fixed.alpha) == (k, beta, alpha)
    assert fixed.kl_sigmoid == pytest.approx(rho * 400), "the annealing is by minibatch, one an epoch, not by share"
    contextual = options(graph, "bam-wc")
    assert (contextual.k, contextual.beta, contextual.network_width, contextual.prior_over) == (k, beta, 1, "all")
    assert options(graph, "bam-no-kl").kl_weight == 0
    assert options(graph, "bam-no-kl").k == k
    assert not options(graph, "bam-wc-detached").kl_gradient
    assert options(graph, "bam-lf").prior_sigma == 1e15
    methods = [row for row in TABLES["bam-1"].methods if row.startswith(("bam", "attn"))]
    assert all(options(graph, row).samples_dropout for row in methods)


def test_the_papers_k_on_language_models() -> None:
    papers = {"cola": 10, "stsb": 20, "sst2": 1000, "rte": 1000, "mrpc": 100}
    assert {task: options(task, "bam-wc", "bam-5", "small").k for task in papers} == papers
    for task in papers:
        found = options(task, "bam-wc", "bam-5", "small")
        assert (found.beta, found.network_width, found.kl_sigmoid) == (0.01, 5, 0.0), "no annealing there"


@pytest.mark.parametrize(("table", "task", "budget"), [("bam-1", "cora", "paper"), ("bam-5", "mrpc", "small")])
def test_rows_of_the_printed_kl_differ_in_the_kl_alone(table: str, task: str, budget: str) -> None:
    papers = options(task, "bam-wc", table, budget)
    for reduction in ("mean", "sum"):
        found = options(task, f"bam-wc, as printed, {reduction}", table, budget)
        assert (found.kl_form, found.kl_reduction, found.prior_over) == ("printed", reduction, "row")
        assert replace(found, kl_form="code", kl_reduction="mean", prior_over=papers.prior_over) == papers


@pytest.mark.parametrize("name", ["bam-1", "bam-5-small"])
def test_kept_runs_are_still_runs_of_their_tables(name: str) -> None:
    kept = read(RESULTS / f"{name}.json")
    table = TABLES[kept.table]
    assert set(kept.by_name) <= {config.name for config in table.configs(kept.budget)}
    part = summarise(table, kept)[0]
    assert next(row.seeds for row in part.rows if row.method == "bam-wc") >= 3


def test_the_tuned_k_is_the_best_of_the_committed_grid() -> None:
    runs = json.loads((RESULTS / "bam-5-k-small.json").read_text())["runs"]
    best: dict[str, tuple[float, float]] = {}
    for run in runs:
        task, k, nll = run["config"]["task"], run["config"]["method_options"]["k"], run["metrics"]["validation_nll"]
        best[task] = min(best.get(task, (float("inf"), 0.0)), (nll, k))
    assert {task: options(task, "bam-wc, k tuned", "bam-5", "small").k for task in best} == {
        t: k for t, (_, k) in best.items()
    }
    assert len(runs) == 20
    for task in best:
        tuned, papers = (options(task, row, "bam-5", "small") for row in ("bam-wc, k tuned", "bam-wc"))
        assert replace(tuned, k=papers.k) == papers, "nothing but k differs"


def test_the_row_with_a_light_kl_differs_in_the_weight_alone() -> None:
    for task in TABLES["bam-5"].tasks():
        light, papers = (options(task, row, "bam-5", "small") for row in ("bam-wc, KL weight 0.01", "bam-wc"))
        assert (light.kl_weight, papers.kl_weight) == (0.01, 1.0)
        assert replace(light, kl_weight=1.0) == papers


def test_seeds_and_shared_runs() -> None:
    seeds = {task: {c.seed for c in TABLES["bam-1"].configs(tasks=[task])} for task in TABLES["bam-1"].tasks()}
    assert {task: len(found) for task, found in seeds.items()} == {"cora": 10, "citeseer": 10, "pubmed": 10}
    pubmed = Counter(c.method for c in TABLES["bam-1"].configs(tasks=["pubmed"], methods=["gat", "bam-lf", "bam-wf"]))
    assert pubmed == {"gat": 10, "bam-lf": 5, "bam-wf": 10}
    runs = {config.name for config in TABLES["bam-1"].configs()}
    assert {config.name for config in TABLES["bam-noise"].configs()} <= runs
    language = TABLES["bam-5"].configs("small")
    assert {c.task for c in language} == {"cola", "rte", "mrpc", "stsb", "sst2"}
    assert {c.seed for c in language} == {0, 1, 2}
    shared = {config.name for config in TABLES["bam-5-k"].configs("small")} & {config.name for config in language}
    assert len(shared) >= 4, "a k that is the paper's is not run again"


def test_table_9_is_the_budget_paper_of_the_paper_s_own_model() -> None:
    """LR, batch, dropouts, steps (as epochs), warm-up, length and k of its rows."""
    table = TABLES["bam-5-albert"]
    found = {config.task: config for config in table.configs(seeds=1, methods=("bam-wc",))}
    assert len(found) == 10
    assert {config.task_options.model for config in found.values()} == {"albert-base-v2"}
    qqp, squad = found["qqp"], found["squad2.0"]
    assert (qqp.training.learning_rate, qqp.training.batch_size, qqp.training.warmup) == (5e-5, 128, 1000 / 14000)
    assert (qqp.task_options.dropout, qqp.task_options.classifier_dropout, qqp.task_options.max_length) == (
        0.1,
        0.1,
        512,
    )
    assert (squad.task_options.dropout, squad.task_options.head_dropout, squad.task_options.max_length) == (
        0.0,
        0.1,
        512,
    )
    steps = {"cola": (5336, 8551), "mnli": (10000, 392_702), "qnli": (33112, 104_743), "mrpc": (800, 3668)}
    for task, (printed, examples) in steps.items():
        training = found[task].training
        assert training.epochs == round(printed * training.batch_size / examples)
    shapes = {"cola": 10, "stsb": 20, "sst2": 1000, "mnli": 5, "qnli": 500, "qqp": 1000, "rte": 1000, "mrpc": 100}
    assert {task: found[task].method_options.k for task in shapes} == shapes
    assert (found["squad1.1"].method_options.k, squad.method_options.k) == (10, 2000)
    assert {(each.method_options.beta, each.method_options.network_width) for each in found.values()} == {(0.01, 5)}
    assert {each.method_options.kl_rho for each in found.values()} == {0.0}, "the KL is not annealed"


def test_tasks_without_data_show_the_paper_s_figures_and_say_why_ours_are_not_there() -> None:
    table = TABLES["bam-5"]
    parts = {part.dataset.label: part for part in summarise(table, TableResults("bam-5", "small", {}, []))}
    assert set(parts) == {"mnli", "qnli", "qqp", "squad1.1", "squad2.0"}
    text = as_markdown(parts["squad1.1"])
    assert "Task `squad1.1`: not run: no data." in text
    assert "| bam-wc | not run | 81.40 |  | not run | 88.82 |  |" in text
    assert not {config.task for config in table.configs("small")} & set(parts)
