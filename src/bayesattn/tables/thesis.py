"""Tables of Cinquin's thesis (2021) on variational attention, with rows of ours added: MC dropout and BAM."""

from __future__ import annotations

from bayesattn.tables.base import Dataset, Metric, Table
from bayesattn.tables.registered import add

SOURCE = "T. Cinquin, master's thesis; with Immer, Horn, Fortuin: Pathologies in priors and inference for Bayesian transformers, 2021"

METHODS = (
    "mle",
    "mc-dropout",
    "ensemble",
    "attn-gaussian",
    "attn-gaussian-dd",
    "attn-dirichlet-approx",
    "attn-dirichlet-approx-dd",
    "attn-dirichlet",
    "attn-dirichlet-dd",
    "bam-wf",
    "bam-wc",
    "bam-lf",
    "bam-lc",
)

LOG_LIKELIHOOD = Metric("log_likelihood", "log_likelihood", "log-likelihood", True)
TOY = (
    LOG_LIKELIHOOD,
    Metric("var_mse", "var_mse", "variance error", False),
    Metric("mse", "mse", "MSE", False),
)

add(
    Table(
        name="thesis-3.11",
        title="Table 3.11: variational attention on toy time series",
        source=SOURCE,
        datasets=tuple(Dataset(name, f"toy-{name.lower()}", TOY) for name in ("M1", "M2", "M3", "M4", "M5")),
        methods=METHODS,
        published_file="thesis_table_3_11.csv",
    )
)
