"""The tables of translation: shared runs, figures beside those of another corpus, ratios."""

from __future__ import annotations

from typing import Any

import pytest

from bayesattn.experiments.runs import configure
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Published
from bayesattn.experiments.tables.printing import as_markdown
from bayesattn.experiments.tables.results import TableResults
from bayesattn.experiments.tables.summary import summarise

NAMES = ("deng-1", "deng-2", "deng-3", "bam-4", "bam-8")


def made_up(method: str, seed: int, seconds_per_step: float, parameters: int) -> dict[str, Any]:
    names = ("perplexity", "perplexity_k_max", "bleu", "bleu_k_max", "prior_entropy")
    return {
        "config": configure("multi30k", method, seed, task_options={"vocabulary": 77}).to_json(),
        "metrics": dict.fromkeys(names, 10.0 + seed),
        "train_seconds": 100 * seconds_per_step,
        "evaluate_seconds": 1.0,
        "seconds_per_step": seconds_per_step,
        "parameters": parameters,
        "commit": "abc",
        "version": "0",
        "torch": "2",
        "finished": "2026-01-01T00:00:00+00:00",
    }


def test_published_figures_are_the_papers() -> None:
    iwslt = "iwslt14-de-en"
    assert TABLES["deng-1"].published()[iwslt, "perplexity", "variational-enumerated"] == Published(6.03, None)
    assert TABLES["deng-2"].published()[iwslt, "bleu_kmax5", "hard-sampled"] == Published(31.04, None)
    assert TABLES["deng-3"].published()[iwslt, "prior_entropy_nats", "relaxed"] == Published(2.02, None)
    assert TABLES["bam-4"].published()[iwslt, "bleu", "bam-wc"] == Published(33.81, 0.02)
    assert TABLES["bam-8"].published()["nmt", "million_parameters", "variational-sampled"] == Published(64.0, None)


def test_the_small_budget_leaves_out_what_needs_data_by_hand_and_runs_are_shared() -> None:
    first = {config.name for config in TABLES["deng-1"].configs("small")}
    assert len(first) == 11 * 2
    for name in NAMES:
        configs = TABLES[name].configs("small")
        assert {config.task for config in configs} == {"multi30k"}
        assert {config.name for config in configs} <= first
    assert {config.task for config in TABLES["deng-1"].configs("small", seeds=1)} == {"multi30k"}
    assert TABLES["deng-1"].configs("small", seeds=1, tasks=("iwslt14",), methods=("soft",))[0].task == "iwslt14"
    paper = TABLES["deng-1"].configs()
    assert {(config.task, config.training.epochs) for config in paper} == {("iwslt14", 30), ("multi30k", 15)}


def test_the_rows_of_tatoeba() -> None:
    table = TABLES["deng-1-tatoeba"]
    configs = table.configs("judge")
    by_row = {row: table.configs("judge", methods=[row]) for row in table.methods}
    assert {row: len(found) for row, found in by_row.items()} == {
        **dict.fromkeys(table.methods, 2),
        **dict.fromkeys(("marginal", "hard-enumerated", "variational-enumerated"), 1),
        "relaxed": 0,
    }
    assert len({config.name for config in configs}) == 15
    draws = {
        row: (by_row[row][0].method_options.samples, by_row[row][0].method_options.baseline)
        for row in table.methods
        if row.startswith("variational-sampled")
    }
    assert draws == {
        "variational-sampled": (1, "soft"),
        "variational-sampled, no baseline": (1, "none"),
        "variational-sampled, 4 draws": (4, "others"),
    }
    assert {config.name for config in TABLES["deng-2-k"].configs("judge")} <= {config.name for config in configs}
    one = configs[0]
    assert (one.task, one.task_options.max_length, one.task_options.vocabulary) == ("tatoeba", 14, 2000)
    assert one.training.epochs * 2112 == pytest.approx(20_000, rel=0.06)


def test_bams_options_for_translation() -> None:
    (config,) = TABLES["bam-4"].configs("small", seeds=1, tasks=("multi30k",), methods=("bam-wc",))
    assert (config.method_options.k, config.method_options.beta) == (5.0, 1e-6)


def test_ratios_are_formed_of_ours_and_of_the_papers() -> None:
    runs = [
        made_up("bam-wc", 0, 0.1, 2_000_000),
        made_up("bam-wc", 1, 0.3, 2_000_000),
        made_up("variational-sampled", 0, 0.3, 3_000_000),
        made_up("variational-sampled", 1, 0.5, 3_000_000),
    ]
    (part,) = summarise(TABLES["bam-8"], TableResults("bam-8", "small", {}, runs))
    step, ratio, count = next(row for row in part.rows if row.method == "variational-sampled").cells
    assert step.mean == pytest.approx(0.4 / 0.2)
    assert step.error == pytest.approx(0.1 / 0.2)
    assert step.published is not None
    assert step.published.value == pytest.approx(0.15 / 0.10)
    assert ratio.mean == pytest.approx(1.5)
    assert ratio.published is not None
    assert ratio.published.value == pytest.approx(64 / 42)
    assert count.mean == pytest.approx(3.0)
    missing = next(row for row in part.rows if row.method == "variational-enumerated").cells[0]
    assert missing.mean is None
    assert "vocabulary 77" in part.spent


def test_figures_of_another_corpus_stand_beside_ours_and_no_difference_is_formed() -> None:
    runs = [made_up("soft", 0, 0.1, 10), made_up("marginal", 0, 0.4, 10)]
    (part,) = summarise(TABLES["deng-1"], TableResults("deng-1", "small", {}, runs))
    lines = as_markdown(part).splitlines()
    header = next(line for line in lines if line.startswith("| method"))
    assert "difference" not in header
    assert header.startswith("| method | perplexity ↓ | paper on iwslt14-de-en | BLEU ↑ | paper on iwslt14-de-en |")
    assert header.endswith("| cost / soft |")
    row = next(line for line in lines if line.startswith("| marginal"))
    assert row == "| marginal | 10.00 | 6.330 | 10.00 | 33.08 | 10.00 | 4.000 | 4.0 |"
