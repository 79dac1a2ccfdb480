"""What Bayesian Attention Modules (Fan et al. 2020) says does not work, tried: Gaussian weights, and a KL that is sampled as a whole."""

from __future__ import annotations

from dataclasses import replace

from bayesattn.experiments.tables.bam import AS_PRINTED, SOURCE
from bayesattn.experiments.tables.base import Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.registered import add
from bayesattn.experiments.tables.visual import QUESTION_OPTIONS, SMALL_ALIGNMENT

PRINTED = AS_PRINTED["bam-wc, as printed, sum"].options
ROWS = {
    "gaussian-weights, σ = 1": Variant("gaussian-weights", {"sigma": 1.0}),
    "gaussian-weights, renormalised": Variant("gaussian-weights", {"renormalise": True}),
    "bam-wc, as printed, sum": Variant("bam-wc", PRINTED),
    "bam-wc-sampled-kl, as printed, sum": Variant("bam-wc-sampled-kl", PRINTED),
}
WEIBULL = QUESTION_OPTIONS["daquar"]["bam-wc"]

add(
    Table(
        name="bam-claims",
        title="What BAM says becomes NaN (section 4.3): weights that are Gaussian themselves, and a KL that is sampled as a whole",
        source=f"{SOURCE}. The paper has a sentence for each and no figures, and tried them on captions",
        datasets=(
            Dataset(
                "DAQUAR",
                "daquar",
                (Metric("", "nll", "NLL", False), Metric("", "accuracy", "accuracy %", True, scale=100.0)),
            ),
        ),
        methods=(
            "soft",
            "gaussian-weights",
            "gaussian-weights, σ = 1",
            "gaussian-weights, renormalised",
            "bam-wc",
            "bam-wc-sampled-kl",
            "bam-wc, as printed, sum",
            "bam-wc-sampled-kl, as printed, sum",
        ),
        published_file=None,
        budgets={"small": {"daquar": replace(SMALL_ALIGNMENT, seeds=1)}},
        method_options={
            "daquar": dict.fromkeys(("bam-wc", "bam-wc-sampled-kl", *list(ROWS)[2:]), WEIBULL),
        },
        reference="soft",
        variants=ROWS,
    )
)
