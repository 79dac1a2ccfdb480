"""Tables on images: the papers' figures, their hyper-parameters, runs that tables share."""

from __future__ import annotations

from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.base import Published
from bayesattn.experiments.tables.printing import as_markdown
from bayesattn.experiments.tables.results import TableResults
from bayesattn.experiments.tables.summary import summarise


def test_published_figures_are_the_papers() -> None:
    two, seven = TABLES["bam-2"].published(), TABLES["bam-7"].published()
    assert two["vqa2", "noisy_accuracy_percent", "bam-wc"] == Published(62.89, None)
    assert two["vqa2", "pavpu_percent", "mc-dropout"] == Published(70.04, None), "its soft row samples dropout"
    assert seven["vqa2, PAvPU, noisy", "number", "bam-wc"] == Published(51.38, None)
    assert len(seven) == 4 * 4 * 5
    three = TABLES["bam-3"].published()
    assert three["coco-karpathy", "cider", "hard-sampled"] == Published(84.4, None)
    assert three["coco-karpathy", "bleu4", "bam-wc"] == Published(32.8, 0.1)
    assert TABLES["deng-1-vqa"].published()["vqa2", "nll", "marginal"] == Published(1.69, None)
    entropies = TABLES["deng-3-vqa"].published()
    assert entropies["vqa2", "prior_entropy_nats", "hard-sampled"] == Published(0.58, None)
    assert len(entropies) == 6, "all rows but relaxed, which the paper did not run"


def test_the_papers_hyper_parameters() -> None:
    configs = {c.method: c for c in TABLES["bam-2"].configs(seeds=1, tasks=("vqa2",))}
    assert (configs["bam-wc"].method_options.k, configs["bam-wc"].method_options.beta) == (1000.0, 1e-6)
    assert configs["bam-wc"].method_options.kl_rho == 0.1
    assert configs["bam-lf"].method_options.sigma == 1e-9
    assert configs["bam-lc"].method_options.network_width == 20
    assert all(configs[name].method_options.samples_dropout for name in ("bam-lf", "bam-wf", "attn-dirichlet"))
    captions = {c.method: c for c in TABLES["bam-3"].configs(seeds=1, tasks=("coco",))}
    assert (captions["bam-wc"].method_options.k, captions["bam-lc"].method_options.prior_sigma) == (10.0, 1e3)


def test_budgets() -> None:
    for name, seeds in (("bam-2", 2), ("bam-3", 2), ("deng-1-vqa", 3)):
        small = TABLES[name].configs("small")
        assert {config.task for config in small} == {"flickr8k" if name == "bam-3" else "daquar"}
        assert {config.seed for config in small} == set(range(seeds))
        rates = [(c.method_options.kl_rho, c.method_options.kl_sigmoid) for c in small if c.method == "bam-wc"]
        assert rates == [(1.0 if name == "bam-3" else 0.1, 0.0)] * seeds, "the annealing is by minibatch"
    assert {config.task_options.model for config in TABLES["deng-1-vqa"].configs()} == {"bottom-up"}
    mcan = {config.method: config for config in TABLES["bam-2"].configs("small")}
    assert mcan["mc-dropout"].method_options.dropout == mcan["soft"].task_options.dropout == 0.3, (
        "one dropout for all rows"
    )
    runs = {config.name for config in TABLES["bam-2"].configs("small")}
    for name in ("bam-7", "bam-vqa-noise"):
        assert {config.name for config in TABLES[name].configs("small")} <= runs
    alignments = [{config.name for config in TABLES[f"deng-{n}-vqa"].configs("small")} for n in (1, 3)]
    assert alignments[0] == alignments[1]


def test_the_papers_captions_are_greedy_and_stand_first() -> None:
    """B.3: "for testing, we use greedy search to generate sequences"."""
    greedy, beam = (dataset for dataset in TABLES["bam-3"].datasets if dataset.beside)
    assert [metric.ours for metric in greedy.metrics][:2] == ["bleu_4_greedy", "bleu_3_greedy"]
    assert [metric.published for metric in greedy.metrics] == [metric.published for metric in beam.metrics][:6]


def test_what_was_not_computed_is_not_run_and_other_data_is_marked() -> None:
    table = TABLES["bam-3"]
    config = next(config for config in table.configs("small") if config.method == "bam-wc")
    metrics = {metric.ours: 12.0 for dataset in table.datasets for metric in dataset.metrics if metric.ours != "meteor"}
    ran = {"config": config.to_json(), "metrics": metrics, "train_seconds": 1.0, "parameters": 1}
    _, part, noisy = summarise(table, TableResults("bam-3", "small", {}, [ran]))
    text = as_markdown(part)
    assert "METEOR ↑ | paper on coco-karpathy" in text
    row = next(line for line in text.splitlines() if line.startswith("| bam-wc"))
    assert "not run | 26.20" in row
    assert row.startswith("| bam-wc | 12.00 | 32.80 |")
    assert [row.method for row in noisy.rows if row.seeds] == ["bam-wc"]
