"""The registry of tables. A new table is a file in this package that adds itself here, and a line in `__init__`."""

from bayesattn.experiments.tables.base import Table

TABLES: dict[str, Table] = {}


def add(table: Table) -> None:
    """Register a table under its name."""
    if table.name in TABLES:
        raise ValueError(f"There is a table named {table.name!r} already.")
    TABLES[table.name] = table
