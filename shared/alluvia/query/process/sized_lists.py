"""Lists of one size, such as embeddings, which have a type of their own in DuckDB. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from alluvia.delta.schema.list_sizes import list_sizes
from alluvia.delta.schema.names import places_of
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.duck.relation import duckdb_type
from alluvia.engine.queries.shown_names import VIEW_SCHEMA


def sizes_of(snapshot: Snapshot, named: Collection[str] | None) -> dict[str, int]:
    """Return the fixed sizes of lists by column. `named` limits the columns, unless it is None."""
    constraints, schema = snapshot.settings.constraints, snapshot.schema
    if not constraints:
        return {}
    fields = map(schema.field, places_of(schema, named))
    return list_sizes(constraints, [field.name for field in fields if pa.types.is_list(field.type)])


def sized_view(name: str, base: str, schema: pa.Schema, sizes: Mapping[str, int]) -> str:
    """Return a view of another view in which lists of one size have DuckDB's ARRAY type."""
    columns = []
    for column, size in sizes.items():
        kind = duckdb_type(schema.field(column).type).removesuffix("[]")
        columns.append(f"{quote_name(column)}::{kind}[{size}] AS {quote_name(column)}")
    replaced = ", ".join(columns)
    return f"CREATE VIEW {VIEW_SCHEMA}.{name} AS SELECT * REPLACE ({replaced}) FROM {VIEW_SCHEMA}.{base}"  # noqa: S608
