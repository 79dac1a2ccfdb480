"""The papers' tables: which runs, which published figures, how to print them."""

from bayesattn.experiments.tables import (
    bam,
    bam_claims,
    bam_glue,
    keep,
    kl_weight,
    nvae,
    thesis,
    thesis_more,
    thesis_weights,
    translation,
    visual,
)
from bayesattn.experiments.tables.base import Budget, Dataset, Metric, Table, Variant
from bayesattn.experiments.tables.registered import TABLES

__all__ = [
    "TABLES",
    "Budget",
    "Dataset",
    "Metric",
    "Table",
    "Variant",
    "bam",
    "bam_claims",
    "bam_glue",
    "keep",
    "kl_weight",
    "nvae",
    "thesis",
    "thesis_more",
    "thesis_weights",
    "translation",
    "visual",
]
