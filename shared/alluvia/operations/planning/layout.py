"""Whether the rows of a table can be laid out as its properties say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import BLOOM_FILTERS, INDEXED_COLUMNS, SORT_BY, read_properties
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.schema.type_names import type_name
from alluvia.delta.statistics.typed import has_bounds
from alluvia.errors import Invalid


def check_layout(metadata: Metadata) -> None:
    """Raise `Invalid`, naming the property and the column, for an order or Bloom filters that files cannot have."""
    settings, schema = read_properties(metadata.configuration), arrow_schema(metadata.schema_string)
    if settings.cluster_by and settings.sort_by:
        raise Invalid(f"cluster_by: the table has sort_by too, and rows can have one order only: set {SORT_BY} to []")
    _check_bloom_filters(settings.bloom_filters, schema)
    _check_sort(settings.sort_by, schema)
    _check_clustering(settings.cluster_by, settings.indexed_columns, schema, metadata.partition_columns)


def _check_bloom_filters(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        kind = schema.field(name).type if name in schema.names else None
        if kind is None or not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
            raise Invalid(f"property {BLOOM_FILTERS}: {name!r} is not a column of text or whole numbers")


def _check_sort(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            raise Invalid(f"sort_by: {name!r} is not a column of the schema")
        if pa.types.is_nested(schema.field(name).type):
            raise Invalid(f"sort_by: {name!r} is {type_name(schema.field(name).type)}, which cannot be sorted")


def _check_clustering(names: Sequence[str], indexed: int, schema: pa.Schema, partition_columns: Sequence[str]) -> None:
    leaves = list(_leaves(field for field in schema if field.name not in partition_columns))
    for at, name in enumerate(names):
        if name not in schema.names:
            raise Invalid(f"cluster_by: {name!r} is not a column of the schema")
        if name in names[:at]:
            raise Invalid(f"cluster_by: {name!r} is named twice")
        if name in partition_columns:
            raise Invalid(f"cluster_by: {name!r} is a partition column, of which each file has one value: leave it out")
        kind = schema.field(name).type
        if not has_bounds(kind):
            raise Invalid(f"cluster_by: {name!r} is {type_name(kind)}, for which files have no bounds")
        if (place := leaves.index(name)) >= indexed:
            raise Invalid(
                f"cluster_by: {name!r} is column {place + 1}, and only {indexed} columns have statistics: raise "
                f"the property {INDEXED_COLUMNS}"
            )


def _leaves(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield for each leaf column the name of the column that it is in: statistics count leaves."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from (field.name for _ in _leaves(field.type.field(at) for at in range(field.type.num_fields)))
        else:
            yield field.name
