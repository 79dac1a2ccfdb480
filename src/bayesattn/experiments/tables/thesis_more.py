"""Beside the thesis's tables: a larger ambiguity test, and the variance error as the thesis defines it."""

from __future__ import annotations

from bayesattn.experiments.tables import thesis, thesis_weights
from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table
from bayesattn.experiments.tables.registered import add
from bayesattn.experiments.tables.thesis import SMALL, SOURCE

add(
    Table(
        name="thesis-ambiguity",
        title="Tables 3.2 and 3.12 on more sentences: those of the treebank whose words have two tags in training",
        source=f"{SOURCE}. The test on the treebank is ours",
        datasets=(
            Dataset(
                "POS ambiguity",
                "pos",
                (
                    Metric("auroc", "ambiguity_auroc", "AUROC, the thesis's 30 sentences", True),
                    Metric("treebank", "treebank_ambiguity_auroc", "AUROC, sentences of the treebank", True),
                    Metric("words", "treebank_ambiguity_word_auroc", "AUROC, their words", True),
                ),
            ),
        ),
        methods=tuple(dict.fromkeys([*thesis_weights.FULL, *thesis.METHODS])),
        published_file=None,
        budgets={"small": {"pos": SMALL["pos"]}},
        method_options={"pos": thesis_weights.METHOD_OPTIONS["pos"] | thesis.METHOD_OPTIONS["pos"]},
    )
)

add(
    Table(
        name="thesis-variance",
        title="Tables 3.1 and 3.11, the variance error: given the last value alone, as the thesis defines it, and given the whole past",
        source=f"{SOURCE}. On M1 to M3 the two are the same",
        datasets=tuple(
            Dataset(
                name,
                f"toy-{name.lower()}",
                (
                    Metric("var_mse", "var_mse_given_last", "variance error given the last value", False),
                    Metric("whole past", "var_mse", "variance error given the whole past", False),
                ),
            )
            for name in ("M4", "M5")
        ),
        methods=thesis.METHODS,
        published_file="thesis_variance.csv",
        budgets={"small": {f"toy-{name}": Budget(seeds=2) for name in ("m4", "m5")}},
    )
)
