"""What earns its keep: methods of all kinds on one footing, each with its own temperature, every score, and its price."""

from __future__ import annotations

from typing import Any

from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.registered import add

TEXTS = ("clinc150", "banking77", "newsgroups", "cola")
"""Tasks of a pretrained encoder, fine-tuned."""
IMAGES = ("digits", "fashion-mnist", "cifar10")
"""Tasks whose model is trained from scratch."""
TWO, THREE, FIVE = "ensemble of 2", "ensemble of 3", "ensemble of 5"
BOUND = "bam-wc, bound of 4 draws"
METHODS = (
    "mle",
    "laplace-head",
    "gp-head",
    "vbll-head",
    "packed",
    "snapshot",
    "swag",
    "mc-dropout",
    "noise-after",
    "attn-dirichlet",
    "attn-gaussian",
    "bam-wc",
    "bam-lc",
    BOUND,
    TWO,
    THREE,
    FIVE,
)

QUALITY = (
    Metric("", "accuracy", "accuracy %", True, scale=100.0),
    Metric("", "nll", "NLL", False),
    Metric("", "nll_t", "NLL, with T", False),
    Metric("", "ece", "ECE %", False, scale=100.0),
    Metric("", "ece_t", "ECE %, with T", False, scale=100.0),
    Metric("", "aurc", "AURC x 1000", False, scale=1000.0),
    Metric("", "disagreement", "labels of two draws that differ, %", None, scale=100.0),
)
PRICE = (
    Metric("", "train_seconds", "price to train / mle", False, relative_to="mle"),
    Metric("", "predict_seconds", "price to predict / mle", False, relative_to="mle"),
)
SCORES = {
    "confidence": "probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
    "energy": "energy",
    "distance": "distance",
    "relative_distance": "relative distance",
    "process_variance": "process variance",
}
OUTSIDE: dict[str, dict[str, str]] = {
    "clinc150": {"oos": "out of scope"},
    "banking77": {"oos": "out of scope"},
    "newsgroups": {"groups": "other groups"},
    "cola": {"domain": "other sources"},
    "digits": {"rotated": "turned", "scrambled": "scrambled", "noise": "noise"},
    "fashion-mnist": {"mnist": "MNIST", "notmnist": "notMNIST", "usps": "USPS"},
    "cifar10": {"svhn": "house numbers", "textures": "textures"},
}
"""Task → the inputs that are of none of its classes, in its results and in words."""
LABELS = {
    "clinc150": "CLINC150",
    "banking77": "Banking77",
    "newsgroups": "Newsgroups",
    "cola": "CoLA",
    "digits": "Digits",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
}
EXTRA: dict[str, tuple[Metric, ...]] = {
    "cola": (
        Metric("", "accuracy_domain", "accuracy % on other sources", True, scale=100.0),
        Metric("", "nll_domain", "NLL on other sources", False),
    ),
    "cifar10": tuple(
        Metric("", f"{name}_corrupted_{strength}", f"{words}, corruption {strength}", name == "accuracy", scale=scale)
        for name, words, scale in (("accuracy", "accuracy %", 100.0), ("nll", "NLL", 1.0))
        for strength in (1, 3, 5)
    ),
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


def _dataset(task: str) -> Dataset:
    outside = [metric for name, words in OUTSIDE[task].items() for metric in _outside(name, words)]
    return Dataset(LABELS[task], task, (*QUALITY, *EXTRA.get(task, ()), *outside, *PRICE))


KNOWING = {"knowing": True}
GLUES = {"epochs": 3, "batch_size": 32, "learning_rate": 5e-5}
"""How GLUE's tasks are trained."""
_ROWS_OF_TEXTS = {"packed": 0, BOUND: 0}
"""A pretrained encoder cannot be packed, and four passes a step are too dear there and for the larger images."""
FINE_TUNED = {"epochs": 6, "batch_size": 64, "learning_rate": 4e-4, "fused": True}
"""How the whole encoder is fine-tuned: the tasks' own rate and epochs at twice the batch, which is a fifth faster."""
FEW_LAYERS: dict[str, Any] = {
    "training": {"epochs": 4, "learning_rate": 5e-4},
    "task_options": {"frozen_layers": 4},
}
"""A fifth of that: the upper two layers of six, the others run once."""

add(
    Table(
        name="keep",
        title="What earns its keep: likelihood, calibration, selective prediction and detection, and what they cost",
        source="ours; T is fitted on validation examples, nothing is chosen on test or outside examples",
        datasets=tuple(_dataset(task) for task in (*TEXTS, *IMAGES)),
        methods=METHODS,
        published_file=None,
        budgets={
            "paper": {
                **{
                    task: Budget(
                        seeds=5,
                        training=FINE_TUNED | (GLUES if task == "cola" else {}),
                        task_options=KNOWING if task == "cola" else {},
                        method_options={"snapshot": {"snapshots": 3}},
                        row_seeds=_ROWS_OF_TEXTS,
                    )
                    for task in TEXTS
                },
                "digits": Budget(seeds=5, task_options=KNOWING),
                "fashion-mnist": Budget(seeds=5, row_seeds={BOUND: 0}),
                "cifar10": Budget(seeds=3, row_seeds={BOUND: 0}),
            },
            "small": {
                **{
                    task: Budget(
                        seeds=3,
                        training=FEW_LAYERS["training"],
                        task_options=FEW_LAYERS["task_options"] | (KNOWING if task == "cola" else {}),
                        method_options={"snapshot": {"snapshots": 4}},
                        row_seeds=_ROWS_OF_TEXTS,
                    )
                    for task in TEXTS
                },
                "digits": Budget(seeds=5, task_options=KNOWING),
                "fashion-mnist": Budget(
                    seeds=5,
                    training={"epochs": 15, "train_share": 0.2},
                    task_options={"test_examples": 2000},
                    row_seeds={BOUND: 0},
                ),
                "cifar10": Budget(
                    seeds=3,
                    training={"epochs": 15, "train_share": 0.2},
                    task_options={"test_examples": 2000},
                    row_seeds={BOUND: 0},
                ),
            },
        },
        method_options={
            task: {
                "bam-wc": {"k": 10.0, "beta": 0.01, "network_width": 5},  # as on GLUE
                "attn-dirichlet": {"kl_reduction": "mean"},
            }
            for task in TEXTS
        }
        | {task: {"attn-dirichlet": {"kl_reduction": "mean"}} for task in IMAGES},
        variants={
            TWO: Variant("ensemble", {"members": 2}),
            THREE: Variant("ensemble", {"members": 3}),
            FIVE: Variant("ensemble", {"members": 5}),
            BOUND: Variant("bam-wc", {"bound_samples": 4}),
        },
    )
)
