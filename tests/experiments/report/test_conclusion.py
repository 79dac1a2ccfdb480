"""One sentence about several runs: it names the best, and what the best costs."""

from __future__ import annotations

from typing import Any

from bayesattn.experiments.report.conclusion import conclusion, costs


def result(log_likelihood: float, auroc: float, seconds: float, seed: int = 0) -> dict[str, Any]:
    metrics = {"log_likelihood": log_likelihood, "auroc_noise": auroc, "auroc_turned": auroc + 0.02}
    return {"metrics": metrics, "train_seconds": seconds, "config": {"seed": seed}}


def test_each_figure_may_have_another_best() -> None:
    runs = {"bam-wc": result(-0.3, 0.7, 20.0), "mle": result(-0.4, 0.8, 10.0), "ensemble": result(-0.35, 0.9, 50.0)}
    assert costs(runs) == {"bam-wc": 2.0, "mle": 1.0, "ensemble": 5.0}
    assert conclusion(runs) == (
        "bam-wc has the best likelihood (0.100 nats an example above mle, 2.0 times mle's training) and ensemble has the best "
        "AUROC of what is outside, mean of 2 kinds (0.910, mle 0.810, 5.0 times mle's training). One seed: small differences are chance."
    )


def test_nothing_is_claimed_where_the_plain_model_is_best() -> None:
    runs = {"mle": result(-0.1, 0.9, 10.0), "mc-dropout": result(-0.2, 0.8, 10.0, seed=1)}
    assert conclusion(runs) == "mle has the best likelihood and the best AUROC of what is outside, mean of 2 kinds."


def test_one_run_and_runs_without_these_figures_have_none() -> None:
    assert conclusion({"mle": result(-0.1, 0.9, 10.0)}) == ""
    other = {"metrics": {"bleu": 30.0}, "train_seconds": 1.0, "config": {"seed": 0}}
    assert conclusion({"soft": other, "marginal": other}) == ""
