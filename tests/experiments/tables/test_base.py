"""Tables: which runs, which published figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Budget, Published


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_runs_and_published_figures_of_its_own_rows(name: str) -> None:
    table = TABLES[name]
    published = table.published()
    ours = {
        (label, metric.published, method)
        for dataset in table.datasets
        for label in (dataset.label, dataset.beside)
        for metric in dataset.metrics
        for method in table.methods
    }
    assert set(published) <= ours
    assert all(table.variant(method).method in METHODS for method in table.methods)


def test_published_figures_are_the_papers() -> None:
    assert TABLES["thesis-3.11"].published()["M4", "log_likelihood", "attn-dirichlet"] == Published(-28.861, 0.006)
    assert TABLES["thesis-3.12"].published()["POS ambiguity", "auroc", "attn-dirichlet"] == Published(0.718, None)
    assert TABLES["thesis-3.15"].published()["Fashion-MNIST vs MNIST", "auroc", "ensemble"] == Published(0.923, None)


def test_the_paper_budget_is_every_tasks_default() -> None:
    configs = TABLES["thesis-3.11"].configs(seeds=3)
    assert len(configs) == 7 * 13 * 3
    assert {
        (config.task, config.training.epochs) for config in configs if config.task in ("toy-m1", "pos", "mnist")
    } == {
        ("toy-m1", 100),
        ("pos", 100),
        ("mnist", 150),
    }
    assert [config.seed for config in configs] == sorted(config.seed for config in configs)


def test_a_smaller_budget_leaves_the_toy_series_alone() -> None:
    table = TABLES["thesis-3.11"]
    paper = {config.name for config in table.configs() if config.task.startswith("toy-")}
    small = {config.name for config in table.configs("small") if config.task.startswith("toy-")}
    assert paper == small
    seeds = {task: sum(config.task == task for config in table.configs("small")) // 13 for task in table.tasks()}
    assert seeds == {**dict.fromkeys(["toy-m1", "toy-m2", "toy-m3", "toy-m4", "toy-m5"], 3), "pos": 2, "mnist": 1}


def test_tables_share_their_runs() -> None:
    everything = {config.name for config in TABLES["thesis-3.11"].configs("small")}
    for name in ("thesis-3.12", "thesis-3.15"):
        assert {config.name for config in TABLES[name].configs("small")} <= everything


def test_a_part_of_a_table() -> None:
    configs = TABLES["thesis-3.11"].configs(seeds=1, tasks=("toy-m2",), methods=("mle", "bam-wf"), epochs=7)
    assert [(config.task, config.method, config.training.epochs) for config in configs] == [
        ("toy-m2", "mle", 7),
        ("toy-m2", "bam-wf", 7),
    ]


def test_unknown_names_are_answered_with_the_nearest() -> None:
    table = TABLES["thesis-3.11"]
    with pytest.raises(ValueError, match=r"budget='smal' is not known. Did you mean 'small'"):
        table.configs("smal")
    with pytest.raises(ValueError, match=r"only='toy-m7' is not known. Did you mean 'toy-m"):
        table.configs(tasks=("toy-m7",))
    with pytest.raises(ValueError, match=r"method='laplace' is not known. Choose one of"):
        table.configs(methods=("laplace",))


def test_a_method_without_a_row_gets_one_and_an_unknown_one_is_refused() -> None:
    table = TABLES["thesis-3.11"]
    extended = table.with_methods(["mle", "laplace"])
    assert extended.methods == (*table.methods, "laplace")
    (config,) = extended.configs(seeds=1, tasks=("toy-m2",), methods=("laplace",))
    assert (config.task, config.method) == ("toy-m2", "laplace")
    with pytest.raises(ValueError, match=r"method='lapace' is not known. Did you mean 'laplace"):
        table.with_methods(["lapace"])


def test_a_row_may_have_a_learning_rate_of_its_own() -> None:
    spent = Budget(seeds=1, training={"epochs": 2}, row_training={"bam-wf": {"learning_rate": 0.25}})
    table = replace(TABLES["thesis-3.11"], budgets={"own": {"toy-m1": spent}})
    rates = {each.method: each.training.learning_rate for each in table.configs("own", tasks=["toy-m1"])}
    assert rates.pop("bam-wf") == 0.25
    assert set(rates.values()) == {table.configs("paper", tasks=["toy-m1"])[0].training.learning_rate}
    assert all(each.training.epochs == 2 for each in table.configs("own", tasks=["toy-m1"]))
