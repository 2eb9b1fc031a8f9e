"""Columns as dbt compares and declares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from dbt.adapters.base.column import Column

from alluvia.engine.duck.literals import quote_name
from alluvia.errors import Invalid
from alluvia.sql.fitting import table_schema
from alluvia.sql.showing import sql_type

_IN_QUERIES = {"STRING": "VARCHAR", "BINARY": "BLOB"}


@dataclass
class AlluviaColumn(Column):
    """A column, with its type in a query (`dtype`) and in CREATE and ALTER TABLE (`stored_type`).

    The two differ for times: TIMESTAMP has a time zone in a table, and none in a query.
    """

    TYPE_LABELS: ClassVar[dict[str, str]] = {}
    stored_type: str = ""

    @property
    def quoted(self) -> str:
        return quote_name(self.column)

    @property
    def data_type(self) -> str:
        return self.dtype

    def is_numeric(self) -> bool:
        return self.dtype.lower().startswith(("decimal", "numeric"))

    def is_integer(self) -> bool:
        return self.dtype.lower() in ("tinyint", "smallint", "integer", "bigint", "hugeint")

    def is_float(self) -> bool:
        return self.dtype.lower() in ("float", "real", "double")

    def is_string(self) -> bool:
        return self.dtype.lower() == "varchar"

    def string_size(self) -> int:
        return 0  # texts have no limit

    def can_expand_to(self, other_column: Column) -> bool:  # noqa: ARG002
        return False


def columns_of(schema: pa.Schema) -> list[AlluviaColumn]:
    """Return the columns of a query, with the types that a table of its rows has.

    A type that no table can have, such as TIME, which views may have, is that of the query, and `stored_type` empty.
    """
    return [_column(field) for field in schema]


def _column(field: pa.Field) -> AlluviaColumn:
    try:
        kind = table_schema(pa.schema([field])).field(0).type
    except Invalid:
        return AlluviaColumn(field.name, _in_views(field.type))
    return AlluviaColumn(field.name, query_type(kind), stored_type=sql_type(kind))


def _in_views(kind: pa.DataType) -> str:
    if pa.types.is_time(kind):
        return "TIME"
    if pa.types.is_interval(kind) or pa.types.is_duration(kind):
        return "INTERVAL"
    return "INTEGER" if pa.types.is_null(kind) else "VARCHAR"


def query_type(kind: pa.DataType) -> str:
    """Return the name of a type in queries."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{quote_name(field.name)} {query_type(field.type)}' for field in kind.fields)})"
    if pa.types.is_map(kind):
        return f"MAP({query_type(kind.key_type)}, {query_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{query_type(kind.value_type)}[]"
    return _IN_QUERIES.get(name := sql_type(kind), name)
