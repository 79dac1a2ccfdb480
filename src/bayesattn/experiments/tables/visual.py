"""Tables on images: visual questions and captions of BAM (2020), visual questions of Deng et al. (2018). Rows of ours are added."""

from __future__ import annotations

from typing import Any

from bayesattn.experiments.tables.bam import SOURCE as BAM
from bayesattn.experiments.tables.base import Budget, Dataset, Mark, Metric, Table
from bayesattn.experiments.tables.registered import add
from bayesattn.experiments.tables.translation import DENG, ENTROPY
from bayesattn.experiments.tasks.visual_questions import QuestionOptions

QUESTION_METHODS = ("soft", "bam-lf", "bam-lc", "bam-wf", "bam-wc", "attn-dirichlet", "mc-dropout", "ensemble")
CAPTION_METHODS = ("soft", "hard-sampled", "bam-lf", "bam-lc", "bam-wf", "bam-wc", "attn-dirichlet")
ALIGNMENT_METHODS = (
    "soft",
    "marginal",
    "hard-enumerated",
    "hard-sampled",
    "variational-enumerated",
    "variational-sampled",
    "relaxed",
    "bam-wc",
)
NOISE = QuestionOptions().noise
PAPER_NOISE = 5.0
"""Variance of the noise in BAM's tables."""

SMALL_DROPOUT = 0.3
SMALL_QUESTIONS = Budget(
    seeds=2,
    training={"epochs": 10, "learning_rate": 5e-4},
    task_options={"test_examples": 1000, "dropout": SMALL_DROPOUT},
)
SMALL_CAPTIONS = Budget(
    seeds=2,
    training={"epochs": 5, "learning_rate": 4e-3},
    task_options={"dim": 128},
)
"""For one core and about two hours (bam-2, bam-7), three quarters (bam-3) and a third of one (deng-1-vqa)."""

JUDGE_CAPTIONS = Budget(
    seeds=10,
    training={"epochs": 20, "learning_rate": 4e-3},
    task_options={"dim": 128},
    row_seeds={row: 10 if row in ("soft", "bam-lc", "bam-wc") else 0 for row in CAPTION_METHODS},
    marks=(
        Mark(
            "soft",
            "validation_change",
            1.0,
            "validation NLL changes by at most 1 % in the last two epochs",
            at_least=False,
        ),
    ),
)


def _question_options() -> dict[str, dict[str, Any]]:
    """BAM's options for visual questions; uncertainty is sampled with dropout on, as in the paper."""
    paper = {
        "bam-lf": {"prior_sigma": 1e9, "sigma": 1e-9, "kl_rho": 0.2},
        "bam-lc": {"prior_sigma": 1e9, "sigma": 1e-9, "network_width": 20, "kl_rho": 0.2},
        "bam-wf": {"k": 1000.0, "beta": 1e-2, "alpha": 1e-3, "kl_rho": 0.2},
        "bam-wc": {"k": 1000.0, "beta": 1e-6, "network_width": 20, "kl_rho": 0.1},
    }
    # the KL of Dirichlet attention is averaged over all weights, as that of BAM is
    found = paper | {"attn-dirichlet": {"kl_reduction": "mean"}}
    return {name: values | {"samples_dropout": True} for name, values in found.items()}


def _caption_options() -> dict[str, dict[str, Any]]:
    """BAM's options for captions; those of the fixed priors, which the paper does not have, are the contextual ones'."""
    paper = {
        "bam-lf": {"prior_sigma": 1e3, "sigma": 0.1},
        "bam-lc": {"prior_sigma": 1e3, "sigma": 0.1, "network_width": 10},
        "bam-wf": {"k": 10.0, "beta": 1e-6, "alpha": 1e-6},
        "bam-wc": {"k": 10.0, "beta": 1e-6, "network_width": 10},
    }
    annealed = {name: values | {"kl_rho": 1.0} for name, values in paper.items()}
    return annealed | {"attn-dirichlet": {"kl_reduction": "mean"}}


def _small(task: str, budget: Budget, options: dict[str, dict[str, Any]] | None = None) -> dict[str, Budget]:
    """The small budget of our data; none of the papers'."""
    published = "coco" if task == "flickr8k" else "vqa2"
    spent = Budget(budget.seeds, budget.training, budget.task_options, options or {})
    return {task: spent, published: Budget(seeds=0)}


def _percent(published: str, ours: str, title: str) -> Metric:
    return Metric(published, ours, title, True, scale=100.0)


QUESTION_OPTIONS = {task: _question_options() for task in ("vqa2", "daquar")}
SMALL = _small(
    "daquar",
    SMALL_QUESTIONS,
    {"ensemble": {"members": 3}, "mc-dropout": {"dropout": SMALL_DROPOUT}},
)

SAMPLED_DROPOUT = {"mc-dropout": "soft"}
"""The paper's soft row has a PAvPU, which needs samples: its dropout stays on. Ours of that kind is mc-dropout."""

OVERALL = (
    _percent("accuracy_percent", "accuracy", "accuracy %"),
    _percent("noisy_accuracy_percent", "accuracy_noise_5", "accuracy %, noisy"),
    _percent("pavpu_percent", "pavpu", "PAvPU %"),
    _percent("noisy_pavpu_percent", "pavpu_noise_5", "PAvPU %, noisy"),
    _percent("pavpu_percent", "pavpu_two_sample", "PAvPU %, two-sample test"),
    _percent("noisy_pavpu_percent", "pavpu_two_sample_noise_5", "PAvPU %, two-sample test, noisy"),
    Metric("nll", "nll", "NLL", False),
    Metric("noisy_nll", "nll_noise_5", "NLL, noisy", False),
    Metric("ece", "ece", "ECE", False),
    Metric("noisy_ece", "ece_noise_5", "ECE, noisy", False),
)
add(
    Table(
        name="bam-2",
        title="Table 2 of BAM: visual questions, clean and with noise of variance 5 on the features",
        source=BAM,
        datasets=(Dataset("vqa2", "vqa2", OVERALL), Dataset("DAQUAR", "daquar", OVERALL, beside="vqa2")),
        methods=QUESTION_METHODS,
        published_file="bam_table_2.csv",
        published_names=SAMPLED_DROPOUT,
        budgets={"small": SMALL},
        method_options=QUESTION_OPTIONS,
        reference="soft",
    )
)


def _by_kind(label: str, task: str, kinds: tuple[str, ...]) -> tuple[Dataset, ...]:
    return tuple(
        Dataset(
            f"{label}, {words}{noisy}",
            task,
            tuple(
                _percent(kind, f"{figure}{'' if kind == 'all' else f'_{kind}'}{suffix}", f"{kind} %") for kind in kinds
            ),
            beside=None if task == "vqa2" else f"vqa2, {words}{noisy}",
        )
        for words, figure in (("accuracy", "accuracy"), ("PAvPU", "pavpu"))
        for noisy, suffix in (("", ""), (", noisy", f"_noise_{PAPER_NOISE:g}"))
    )


add(
    Table(
        name="bam-7",
        title="Table 7 of BAM: visual questions by kind of answer (the runs of table bam-2)",
        source=BAM,
        datasets=(
            *_by_kind("vqa2", "vqa2", ("all", "yes-no", "number", "other")),
            *_by_kind("DAQUAR", "daquar", ("all", "number", "other")),
        ),
        methods=QUESTION_METHODS,
        published_file="bam_table_7.csv",
        published_names=SAMPLED_DROPOUT,
        budgets={"small": SMALL},
        method_options=QUESTION_OPTIONS,
        reference="soft",
    )
)

add(
    Table(
        name="bam-vqa-noise",
        title="Robustness of BAM on DAQUAR: trained on clean features, tested with noise on them (the runs of table bam-2)",
        source="ours: the paper has noise of variance 5 alone",
        datasets=tuple(
            Dataset(
                f"DAQUAR, {title} against the variance of the noise",
                "daquar",
                (
                    Metric("", figure, f"{title}, none", higher, scale=scale),
                    *(Metric("", f"{figure}_noise_{v:g}", f"{v:g}", higher, scale=scale) for v in NOISE),
                ),
            )
            for title, figure, higher, scale in (
                ("accuracy %", "accuracy", True, 100.0),
                ("PAvPU %", "pavpu", True, 100.0),
                ("NLL", "nll", False, 1.0),
                ("ECE", "ece", False, 1.0),
            )
        ),
        methods=QUESTION_METHODS,
        published_file=None,
        budgets={"small": SMALL},
        method_options=QUESTION_OPTIONS,
        reference="soft",
    )
)

# "For testing, we use greedy search to generate sequences" (B.3); what a beam of 3 finds stands beside
GREEDY_METRICS = (
    *(Metric(f"bleu{order}", f"bleu_{order}_greedy", f"BLEU-{order}", True) for order in (4, 3, 2, 1)),
    Metric("cider", "cider_d_greedy", "CIDEr-D", True),
    Metric("rouge", "rouge_l_greedy", "ROUGE-L", True),
)
CAPTION_METRICS = (
    *(Metric(f"bleu{order}", f"bleu_{order}", f"BLEU-{order}", True) for order in (4, 3, 2, 1)),
    Metric("cider", "cider_d", "CIDEr-D", True),
    Metric("rouge", "rouge_l", "ROUGE-L", True),
    Metric("meteor", "meteor", "METEOR", True),
)
OUR_CAPTION_METRICS = (
    Metric("perplexity", "perplexity", "perplexity", False),
    Metric("cider_greedy", "cider_d_greedy", "CIDEr-D, greedy", True),
    *(Metric("", f"cider_d_noise_{v:g}", f"noise {v:g}", True) for v in NOISE),
)
CAPTION_OPTIONS = {task: _caption_options() for task in ("coco", "flickr8k")}
add(
    Table(
        name="bam-3",
        title="Table 3 of BAM: captions",
        source=BAM,
        datasets=(
            Dataset("coco-karpathy", "coco", CAPTION_METRICS),
            Dataset("Flickr8k, greedy captions as in the paper", "flickr8k", GREEDY_METRICS, beside="coco-karpathy"),
            Dataset("Flickr8k, beam of 3", "flickr8k", CAPTION_METRICS, beside="coco-karpathy"),
            Dataset("Flickr8k, greedy captions clean and with noise", "flickr8k", OUR_CAPTION_METRICS),
        ),
        methods=CAPTION_METHODS,
        published_file="bam_table_3.csv",
        budgets={
            "small": _small("flickr8k", SMALL_CAPTIONS),
            "judge": {"coco": Budget(seeds=0), "flickr8k": JUDGE_CAPTIONS},
        },
        method_options=CAPTION_OPTIONS,
        reference="soft",
    )
)

BOTTOM_UP: dict[str, Any] = {"model": "bottom-up", "fusion": "concatenation"}
# the product of two ReLU layers learns slowly and soon overfits: a large rate, decay and dropout, by the validation images
SMALL_ALIGNMENT = Budget(
    seeds=3,
    training={"epochs": 10, "learning_rate": 1e-2, "weight_decay": 3e-4},
    task_options=SMALL_QUESTIONS.task_options | BOTTOM_UP | {"dropout": 0.5},
)
ALIGNMENT_METRICS = (
    Metric("nll", "nll", "NLL", False),
    _percent("accuracy_percent", "accuracy", "accuracy %"),
    Metric("noisy_nll", "nll_noise_5", "NLL, noisy", False),
    _percent("noisy_accuracy_percent", "accuracy_noise_5", "accuracy %, noisy"),
)
ALIGNMENT_BUDGETS = {
    "paper": {
        "vqa2": Budget(
            training={"epochs": 50, "batch_size": 512, "learning_rate": 5e-4},
            task_options=BOTTOM_UP | {"dim": 1024, "embedding_dim": 300, "dropout": 0.5},
        ),
        "daquar": Budget(task_options=BOTTOM_UP),
    },
    "small": _small("daquar", SMALL_ALIGNMENT),
}
for _name, _title, _metrics in (
    (
        "deng-1-vqa",
        "Table 1 of Deng et al., right: visual questions with soft, hard, marginal and variational alignment",
        ALIGNMENT_METRICS,
    ),
    (
        "deng-3-vqa",
        "Table 3 (right) of Deng et al., visual questions: how sure the prior alignment is (the runs of table deng-1-vqa)",
        (ENTROPY,),
    ),
):
    add(
        Table(
            name=_name,
            title=_title,
            source=DENG,
            datasets=(Dataset("vqa2", "vqa2", _metrics), Dataset("DAQUAR", "daquar", _metrics, beside="vqa2")),
            methods=ALIGNMENT_METHODS,
            published_file=f"{_name.replace('-', '_table_', 1).replace('-', '_')}.csv",
            budgets=ALIGNMENT_BUDGETS,
            method_options={task: {"bam-wc": options["bam-wc"]} for task, options in QUESTION_OPTIONS.items()},
            reference="soft",
        )
    )
