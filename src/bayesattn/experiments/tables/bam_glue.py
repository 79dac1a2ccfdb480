"""Tables 5 and 9 of Bayesian Attention Modules (Fan et al. 2020): fine-tuned language models, the paper's and a smaller one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayesattn.experiments.tables.bam import AS_PRINTED, SOURCE
from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.registered import add

TUNED, LIGHT = "bam-wc, k tuned", "bam-wc, KL weight 0.01"
METHODS = (
    "mle",
    "bam-wc",
    *AS_PRINTED,
    TUNED,
    LIGHT,
    "bam-wc-detached",
    "bam-lc",
    "attn-dirichlet",
    "mc-dropout",
    "ensemble",
)

PAPER_K = {"cola": 10.0, "stsb": 20.0, "sst2": 1000.0, "rte": 1000.0, "mrpc": 100.0}
"""The paper's k of each task, for ALBERT-base."""

TUNED_K = {"cola": 10.0, "stsb": 1.0, "sst2": 1.0, "rte": 1.0, "mrpc": 1000.0}
"""The k of each task with the best likelihood of held-out examples in table bam-5-k, for MiniLM."""


def _options(k: float) -> dict[str, dict[str, Any]]:
    weibull = {"k": k, "beta": 0.01, "network_width": 5}
    # the KL of Dirichlet attention is averaged over all weights, as that of BAM is
    return dict.fromkeys(("bam-wc", "bam-wc-detached", *AS_PRINTED), weibull) | {
        "attn-dirichlet": {"kl_reduction": "mean"}
    }


SCORE = "the mean of accuracy and F1 on MRPC, of Pearson's and Spearman's correlation on STS-B, Matthews's on CoLA, else accuracy"
# "substituting the latent variables by their posterior expectations" (3.4) is what the paper scores; ours beside it averages samples
SCORES = (
    Metric("glue_score", "score_of_point_estimate", "score %, point estimate", True, scale=100.0),
    Metric("glue_score", "score", "score %, mean of samples", True, scale=100.0),
)
CLASSES = (
    *SCORES,
    Metric("nll", "nll", "NLL", False),
    Metric("ece", "ece", "ECE", False),
    Metric("pavpu", "pavpu_0.05", "PAvPU % at 0.05", True, scale=100.0),
    Metric("", "pavpu_two_sample_0.05", "PAvPU % at 0.05, two-sample test", True, scale=100.0),
    Metric("aurc", "aurc", "AURC", False),
)
REGRESSION = (
    *SCORES,
    Metric("nll", "nll", "NLL", False),
    Metric("coverage_0.5", "coverage_0.5", "in the 50 % interval, %", True, scale=100.0),
    Metric("coverage_0.9", "coverage_0.9", "in the 90 % interval, %", True, scale=100.0),
    Metric("width_0.9", "width_0.9", "width of the 90 % interval", False),
    Metric("aurc", "aurc", "AURC of the squared error", False),
)

SPANS = (
    Metric("em", "exact_match_of_point_estimate", "exact match %, point estimate", True, scale=100.0),
    Metric("f1", "f1_of_point_estimate", "F1 %, point estimate", True, scale=100.0),
)
WITHOUT_DATA = ("mnli", "qnli", "qqp", "squad1.1", "squad2.0")
LEFT_OUT = {task: Budget(seeds=0) for task in WITHOUT_DATA}


def _small(frozen_layers: int, learning_rate: float, **more: Any) -> Budget:
    """The lowest layers of MiniLM's 6 frozen and run once, 64 tokens; after two epochs the held-out likelihood of the tasks tried fell."""
    return Budget(
        seeds=3,
        training={"epochs": 2, "learning_rate": learning_rate, "samples": 10},
        task_options={"frozen_layers": frozen_layers, "max_length": 64} | more,
        method_options={"ensemble": {"members": 3}},
    )


SMALL = {
    "cola": _small(2, 1e-4),
    "mrpc": _small(2, 1e-4),
    "rte": _small(4, 2e-4),  # at chance with 2 frozen layers, too
    "stsb": _small(4, 2e-4),
    "sst2": _small(4, 2e-4, train_examples=6000),
}

add(
    Table(
        name="bam-5",
        title="Table 5 of BAM: fine-tuned language models; ours is MiniLM-L6, what stands beside is the paper's ALBERT-base, another model",
        source=f"{SOURCE}. The score is {SCORE}",
        datasets=(
            *(
                Dataset(f"{task}, MiniLM", task, REGRESSION if task == "stsb" else CLASSES, beside=task)
                for task in ("cola", "rte", "mrpc", "stsb", "sst2")
            ),
            *(
                Dataset(task, task, SPANS if task.startswith("squad") else SCORES[:1], not_run="no data")
                for task in WITHOUT_DATA
            ),
        ),
        methods=METHODS,
        published_file="bam_table_5.csv",
        budgets={"small": SMALL | LEFT_OUT, "paper": LEFT_OUT},
        method_options={
            task: _options(k) | {TUNED: _options(TUNED_K[task])["bam-wc"], LIGHT: _options(k)["bam-wc"]}
            for task, k in PAPER_K.items()
        },
        variants={TUNED: Variant("bam-wc", {}), LIGHT: Variant("bam-wc", {"kl_weight": 0.01}), **AS_PRINTED},
    )
)

ALBERT = "albert-base-v2"
DATASETS = ("mrpc", "cola", "rte", "mnli", "qnli", "qqp", "sst2", "stsb", "squad1.1", "squad2.0")


def _printed(
    learning_rate: float, batch_size: int, dropout: float, epochs: int, warmup: float, max_length: int, head: str
) -> Budget:
    """A row of table 9. It counts training steps; here they are the nearest whole number of epochs, and warm-up is its share of them."""
    return Budget(
        seeds=3,
        training={
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "warmup": warmup,
            "samples": 10,
        },
        task_options={"model": ALBERT, "max_length": max_length, "dropout": dropout, head: 0.1},
    )


# LR, batch size, ALBERT's dropout, training steps as epochs, warm-up steps / training steps, maximum length; classifier dropout is 0.1
TABLE_9 = {
    "cola": _printed(1e-5, 16, 0.0, 10, 320 / 5336, 512, "classifier_dropout"),
    "stsb": _printed(2e-5, 16, 0.0, 10, 214 / 3598, 512, "classifier_dropout"),
    "sst2": _printed(1e-5, 32, 0.0, 10, 1256 / 20935, 512, "classifier_dropout"),
    "mnli": _printed(3e-5, 128, 0.0, 3, 1000 / 10000, 512, "classifier_dropout"),
    "qnli": _printed(1e-5, 32, 0.0, 10, 1986 / 33112, 512, "classifier_dropout"),
    "qqp": _printed(5e-5, 128, 0.1, 5, 1000 / 14000, 512, "classifier_dropout"),
    "rte": _printed(3e-5, 32, 0.1, 10, 200 / 800, 512, "classifier_dropout"),
    "mrpc": _printed(2e-5, 32, 0.0, 7, 200 / 800, 512, "classifier_dropout"),
    "squad1.1": _printed(5e-5, 48, 0.0, 2, 365 / 3649, 384, "head_dropout"),
    "squad2.0": _printed(3e-5, 48, 0.0, 3, 814 / 8144, 512, "head_dropout"),
}
TABLE_9_K = PAPER_K | {"mnli": 5.0, "qnli": 500.0, "qqp": 1000.0, "squad1.1": 10.0, "squad2.0": 2000.0}

add(
    Table(
        name="bam-5-albert",
        title="Table 5 of BAM with its own model, ALBERT-base, and table 9's hyper-parameters: for those who have both and the data",
        source=f"{SOURCE}. The score is {SCORE}",
        datasets=tuple(Dataset(task, task, SPANS if task.startswith("squad") else SCORES[:1]) for task in DATASETS),
        methods=("mle", "bam-wc"),
        published_file="bam_table_5.csv",
        budgets={"paper": TABLE_9},
        method_options={task: {"bam-wc": _options(k)["bam-wc"]} for task, k in TABLE_9_K.items()},
    )
)

GRID = {f"k = {k:g}": Variant("bam-wc", {"k": k}) for k in (1.0, 10.0, 100.0, 1000.0)}

add(
    Table(
        name="bam-5-k",
        title="The shape k of Weibull attention on MiniLM, chosen by the likelihood of held-out training examples",
        source="ours, for the row of table bam-5 whose k is tuned; one seed",
        datasets=tuple(
            Dataset(task, task, (Metric("", "validation_nll", "NLL of held-out examples", False), SCORES[1]))
            for task in PAPER_K
        ),
        methods=tuple(GRID),
        published_file=None,
        budgets={"small": {task: replace(budget, seeds=1) for task, budget in SMALL.items()}},
        method_options={task: dict.fromkeys(GRID, _options(k)["bam-wc"]) for task, k in PAPER_K.items()},
        reference="k = 10",
        variants=GRID,
    )
)
