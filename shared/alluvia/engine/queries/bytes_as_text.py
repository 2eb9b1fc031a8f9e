"""Casts of bytes to text, in which DuckDB writes a quote as `\\x22`: they are refused. Pure."""

from __future__ import annotations

from collections.abc import Container

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.parse import Node, walk
from alluvia.errors import Invalid


def check_casts(root: Node, columns: Container[str]) -> None:
    """Raise `Invalid` for a cast to text of one of the columns of bytes, given by their folded names.

    It would be compared with `\\x22` for each quote: a search in the JSON of rejected events would find nothing.
    """
    for node in walk(root):
        if node.get("class") == "CAST" and node["cast_type"].get("id") == "VARCHAR":
            name = node["child"]["column_names"][-1] if node["child"].get("class") == "COLUMN_REF" else None
            if name is not None and fold(name) in columns:
                raise Invalid(
                    rf"column {name} has bytes, and a cast to text writes \x22 for a quote: write decode({name}), "
                    f"as in decode({name}) LIKE '%x%'"
                )
