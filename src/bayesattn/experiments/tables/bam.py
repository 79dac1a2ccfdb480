"""Tables of Bayesian Attention Modules (Fan et al. 2020), with rows of ours added, and their robustness to noise."""

from __future__ import annotations

from typing import Any

from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.registered import add
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.graphs import EDGE_LEVELS, NOISE_LEVELS

SOURCE = "X. Fan, S. Zhang, B. Chen, M. Zhou: Bayesian attention modules, NeurIPS 2020"

GRAPHS = ("cora", "citeseer", "pubmed")
GRAPH_METHODS = (
    "gat",
    "bam-no-kl",
    "bam-lf",
    "bam-lc",
    "bam-wf",
    "bam-wc",
    "bam-wc-detached",
    "attn-dirichlet",
    "mc-dropout",
    "ensemble",
)

AS_PRINTED = {
    f"bam-wc, as printed, {reduction}": Variant(
        "bam-wc", {"kl_form": "printed", "kl_reduction": reduction, "prior_over": "row"}
    )
    for reduction in ("mean", "sum")
}
"""The KL of equations 2 to 5: raw scores, α = Ψ shared among the keys of a row; summed as there, or averaged as in the released code."""

ACCURACY = Metric("accuracy_percent", "accuracy", "accuracy %", True, scale=100.0)
GRAPH_METRICS = (
    ACCURACY,
    Metric("nll", "nll", "NLL", False),
    Metric("ece", "ece", "ECE", False),
    *(
        Metric(f"pavpu_{level}", f"pavpu_{level}", f"PAvPU % at {level}", True, scale=100.0)
        for level in ("0.01", "0.05", "0.1")
    ),
    Metric("", "pavpu_two_sample_0.05", "PAvPU % at 0.05, two-sample test", True, scale=100.0),
)


def _on_graph(rho_of: dict[str, float], **options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The paper's hyper-parameters of one graph by method, and what its code does with all of them there."""
    steps = TASKS.create("cora").training.epochs  # a graph is one minibatch, so this is sigmoid(rho · minibatch)
    weibull = options["wc"]["k"]
    by_method = {
        "bam-lf": options["lf"],
        "bam-lc": options["lc"] | {"prior_over": "all"},
        "bam-wf": options["wf"],
        "bam-wc": options["wc"] | {"prior_over": "all"},
        "bam-wc-detached": options["wc"] | {"prior_over": "all"},
        **dict.fromkeys(AS_PRINTED, options["wc"]),
        "bam-no-kl": {"k": weibull},
    }
    annealed = {
        method: values | {"kl_sigmoid": rho_of[method.removeprefix("bam-")[:2]] * steps}
        for method, values in by_method.items()
        if method != "bam-no-kl"
    }
    # the KL of Dirichlet attention is averaged over all weights, as that of BAM is
    random = by_method | annealed | {"attn-dirichlet": {"kl_reduction": "mean"}}
    dropout = {"mc-dropout": {"dropout": TASKS.entry("cora").options.dropout}}
    return {method: values | {"samples_dropout": True} for method, values in random.items()} | dropout


GRAPH_OPTIONS = {
    "cora": _on_graph(
        {"lf": 0.2, "lc": 0.1, "wf": 0.2, "wc": 0.1},
        lf={"prior_sigma": 1e15, "sigma": 1e-6},
        lc={"prior_sigma": 1e15, "sigma": 1e-15, "network_width": 1},
        wf={"k": 1.0, "beta": 1e-10, "alpha": 1e-15},
        wc={"k": 1.0, "beta": 1e-10, "network_width": 1},
    ),
    "citeseer": _on_graph(
        {"lf": 0.1, "lc": 0.1, "wf": 0.1, "wc": 0.1},
        lf={"prior_sigma": 1e15, "sigma": 1e-6},
        lc={"prior_sigma": 1e15, "sigma": 1e-5, "network_width": 1},
        wf={"k": 100.0, "beta": 1e-15, "alpha": 1e-7},
        wc={"k": 100.0, "beta": 1e-15, "network_width": 1},
    ),
    "pubmed": _on_graph(
        {"lf": 0.2, "lc": 0.2, "wf": 0.2, "wc": 0.2},
        lf={"prior_sigma": 1e6, "sigma": 1e-2},
        lc={"prior_sigma": 1e5, "sigma": 1e-2, "network_width": 5},
        wf={"k": 10.0, "beta": 1e-8, "alpha": 1e-4},
        wc={"k": 10.0, "beta": 1e-4, "network_width": 5},
    ),
}
# with up to five times the edges, robustness on PubMed would take as long as the training
GRAPH_BUDGET = {
    "cora": Budget(seeds=10),
    "citeseer": Budget(seeds=10),
    "pubmed": Budget(
        seeds=5,
        task_options={"robustness": False},
        row_seeds=dict.fromkeys(("gat", "bam-no-kl", "bam-wf", "bam-wc"), 10),
    ),
}

add(
    Table(
        name="bam-1",
        title="Table 1 of BAM: node classification with graph attention networks",
        source=SOURCE,
        datasets=tuple(Dataset(name, name, GRAPH_METRICS) for name in GRAPHS),
        methods=(*GRAPH_METHODS, *AS_PRINTED),
        published_file="bam_table_1.csv",
        budgets={"paper": GRAPH_BUDGET},
        method_options=GRAPH_OPTIONS,
        variants=AS_PRINTED,
        reference="gat",
    )
)

DISTURBANCES = (("noise", "share of wrong words", NOISE_LEVELS), ("edges", "random edges added", EDGE_LEVELS))

add(
    Table(
        name="bam-noise",
        title="Robustness of BAM on graphs: trained on the graph as it is, tested on a disturbed one (the runs of table bam-1)",
        source="ours: the paper claims robustness to noise, and shows it for visual question answering",
        datasets=tuple(
            Dataset(f"{graph}, {words}: {title}", graph, tuple(metrics))
            for graph in ("cora", "citeseer")
            for name, words, levels in DISTURBANCES
            for title, metrics in (
                (
                    "accuracy",
                    [
                        ACCURACY,
                        *(
                            Metric("", f"accuracy_{name}_{level:g}", f"{level:g}", True, scale=100.0)
                            for level in levels
                        ),
                    ],
                ),
                (
                    "PAvPU at 0.05",
                    [
                        Metric("", "pavpu_0.05", "PAvPU %", True, scale=100.0),
                        *(
                            Metric("", f"pavpu_0.05_{name}_{level:g}", f"{level:g}", True, scale=100.0)
                            for level in levels
                        ),
                    ],
                ),
            )
        ),
        methods=GRAPH_METHODS,
        published_file=None,
        budgets={"paper": GRAPH_BUDGET},
        method_options=GRAPH_OPTIONS,
        reference="gat",
    )
)
