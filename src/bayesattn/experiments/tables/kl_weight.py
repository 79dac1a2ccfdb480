"""Which weight of the KL keeps a pretrained model's training as it was: what the default of `ba.elbo` is, and why."""

from __future__ import annotations

from bayesattn.experiments.tables.bam_glue import CLASSES, LIGHT
from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.keep import FEW_LAYERS, QUALITY
from bayesattn.experiments.tables.registered import add

OF_GLUE = tuple(metric for metric in CLASSES if metric.ours in ("score", "nll", "ece", "aurc"))
OF_CLINC150 = (
    *(metric for metric in QUALITY if metric.ours in ("accuracy", "nll", "ece", "aurc")),
    *(
        Metric("", f"auroc_oos_{score}", f"AUROC % of out of scope, {score}", True, scale=100.0)
        for score in ("entropy", "energy", "distance")
    ),
)
WHOLE = {"learning_rate": 1e-4, "samples": 10}
"""The whole of MiniLM is trained, at the rate of table bam-5; on CLINC150 its upper two layers."""

add(
    Table(
        name="kl-weight",
        title="The weight of the KL: Weibull attention with the default of ba.elbo beside the model without a KL",
        source="ours; k = 10, contextual Gamma prior, β = 0.01, the KL averaged over the weights",
        datasets=(
            Dataset("CLINC150", "clinc150", OF_CLINC150),
            Dataset("CoLA", "cola", OF_GLUE),
            Dataset("SST-2, 6,000 examples", "sst2", OF_GLUE),
        ),
        methods=("mle", LIGHT, "bam-wc"),
        published_file=None,
        budgets={
            "small": {
                "clinc150": Budget(seeds=3, row_seeds={"bam-wc": 1}, **FEW_LAYERS),
                "cola": Budget(
                    seeds=3, training={"epochs": 3} | WHOLE, task_options={"max_length": 64}, row_seeds={"bam-wc": 1}
                ),
                "sst2": Budget(
                    seeds=3,
                    training={"epochs": 2} | WHOLE,
                    task_options={"max_length": 64, "train_examples": 6000},
                    row_seeds={"bam-wc": 1},
                ),
            }
        },
        variants={LIGHT: Variant("bam-wc", {"kl_weight": 0.01})},
    )
)
