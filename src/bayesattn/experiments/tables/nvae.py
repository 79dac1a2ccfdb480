"""The autoencoders of Henderson and Fehr (2023): what is written again, against how many vectors are kept."""

from __future__ import annotations

from bayesattn.experiments.tables.base import Budget, Dataset, Mark, Metric, Table, Variant
from bayesattn.experiments.tables.registered import add

TASK = "nvae-wikitext2"

NVAE = {f"nvae-{delta:g}": Variant("nvae", {"delta": delta}) for delta in (0.3, 0.2, 0.1, 0.03)}
VTS = {f"vts-{dropped:g}": Variant("vts", {"dropped": dropped}) for dropped in (0.25, 0.5, 0.75, 0.9)}
VTP = {f"vtp-{pooling}": Variant("vtp", {"pooling": pooling}) for pooling in ("mean", "max")}

ROWS = ("t", "vt", *VTS, *VTP, *NVAE)

# Not published: the paper's runs are long enough to start from any noise and any pseudo-counts. A short one is not, so noise starts small,
# and the KL of the weights, which at first pushes vectors out that the decoder cannot use yet, grows in the first quarter.
START = {"initial_log_variance": -4.0, "annealing": "monotonic"}

SMALL = Budget(
    seeds=1,
    training={"epochs": 3, "train_share": 0.16, "batch_size": 32, "learning_rate": 2e-3},
    task_options={
        "hidden": 128,
        "feedforward": 256,
        "vocabulary": 2000,
        "test_sentences": 300,
        "pairs": 60,
        "generated": 300,
    },
    method_options={row: {"dropout": 0.0} for row in ROWS},
)
"""Two to three processor minutes for each run."""

JUDGE = Budget(
    seeds=1,
    training={"epochs": 12, "batch_size": 32, "learning_rate": 2e-3},
    task_options={**SMALL.task_options, "pairs": 300},
    method_options=SMALL.method_options,
    row_seeds={"t": 1, "vts-0.9": 0, "vtp-max": 0} | dict.fromkeys(("vt", "vts-0.5", "nvae-0.2", "nvae-0.1"), 2),
    marks=(
        Mark(
            "t",
            "validation_change",
            1.0,
            "validation NLL changes by at most 1 % in the last two epochs",
            at_least=False,
        ),
    ),
)
"""All sentences of WikiText-2; a second seed for four rows."""

add(
    Table(
        name="nvae",
        title="NVAE, figures 4 to 6: sentences of WikiText-2 written again through a bottleneck",
        source="J. Henderson, F. Fehr: A VAE for transformers with nonparametric variational information bottleneck, ICLR 2023",
        datasets=(
            Dataset(
                "WikiText-2",
                TASK,
                (
                    Metric("bleu", "bleu", "BLEU", True),
                    Metric("retained", "retained", "vectors kept, ν", None),
                    Metric("nll", "nll_per_token", "NLL per token", False),
                    Metric("new", "halfway_new", "τ = 0.5: new texts", None),
                    Metric("halfway", "halfway_perplexity", "τ = 0.5: perplexity", False),
                    Metric("forward", "forward_perplexity", "from the prior: forward perplexity", False),
                    Metric("reverse", "reverse_perplexity", "reverse perplexity", False),
                ),
            ),
        ),
        methods=ROWS,
        published_file=None,
        reference="t",
        budgets={"small": {TASK: SMALL}, "judge": {TASK: JUDGE}},
        method_options={TASK: dict.fromkeys(ROWS[1:], START)},
        variants=NVAE | VTS | VTP,
    )
)
