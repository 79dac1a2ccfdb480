"""The papers' tables: which runs, which published figures, how to print them."""

from bayesattn.tables import thesis, thesis_weights
from bayesattn.tables.base import Budget, Dataset, Metric, Table
from bayesattn.tables.registered import TABLES

__all__ = ["TABLES", "Budget", "Dataset", "Metric", "Table", "thesis", "thesis_weights"]
