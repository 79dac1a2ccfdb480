"""What earns its keep: methods of all kinds on one footing, each with its own temperature, every score, and its price."""

from __future__ import annotations

from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.registered import add

TASKS = ("clinc150", "banking77", "newsgroups")
TWO, FIVE = "ensemble of 2", "ensemble of 5"
METHODS = ("mle", "mc-dropout", "attn-dirichlet", "attn-gaussian", "bam-wc", "bam-lc", "swag", TWO, FIVE)

QUALITY = (
    Metric("", "accuracy", "accuracy %", True, scale=100.0),
    Metric("", "nll", "NLL", False),
    Metric("", "nll_t", "NLL, with T", False),
    Metric("", "ece", "ECE %", False, scale=100.0),
    Metric("", "ece_t", "ECE %, with T", False, scale=100.0),
    Metric("", "aurc", "AURC x 1000", False, scale=1000.0),
    Metric("", "disagreement", "labels of two draws that differ, %", None, scale=100.0),
)
PRICE = (Metric("", "predict_seconds", "price to predict / mle", False, relative_to="mle"),)
SCORES = {
    "confidence": "probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
    "energy": "energy",
    "distance": "distance",
    "relative_distance": "relative distance",
}


def _outside(name: str, words: str) -> tuple[Metric, ...]:
    """How well each score finds the inputs `name`; AUROC and, at 95 % accepted of the known, how many of these are."""
    return (
        *(
            Metric("", f"auroc_{name}_{score}", f"AUROC % of {words}, {what}", True, scale=100.0)
            for score, what in SCORES.items()
        ),
        *(
            Metric("", f"accepted_{name}_{score}", f"{words} accepted %, {SCORES[score]}", False, scale=100.0)
            for score in ("confidence", "energy", "distance")
        ),
    )


add(
    Table(
        name="keep",
        title="What earns its keep: likelihood, calibration, selective prediction and detection, and what they cost",
        source="ours; T is fitted on validation examples, nothing is chosen on test or outside examples",
        datasets=(
            Dataset("CLINC150", "clinc150", (*QUALITY, *_outside("oos", "out of scope"), *PRICE)),
            Dataset("Banking77", "banking77", (*QUALITY, *_outside("oos", "out of scope"), *PRICE)),
            Dataset("Newsgroups", "newsgroups", (*QUALITY, *_outside("groups", "other groups"), *PRICE)),
        ),
        methods=METHODS,
        published_file=None,
        budgets={
            "paper": {task: Budget(seeds=5) for task in TASKS},
            "small": {
                task: Budget(seeds=3, training={"epochs": 4, "learning_rate": 5e-4}, task_options={"frozen_layers": 4})
                for task in TASKS
            },
        },
        method_options={
            task: {
                "bam-wc": {"k": 10.0, "beta": 0.01, "network_width": 5},  # as on GLUE
                "attn-dirichlet": {"kl_reduction": "mean"},
            }
            for task in TASKS
        },
        variants={TWO: Variant("ensemble", {"members": 2}), FIVE: Variant("ensemble", {"members": 5})},
    )
)
