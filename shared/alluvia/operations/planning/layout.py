"""Rules of a table that plans hold to: where its files go, which rows it accepts, and how long it keeps them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.delta.log.actions import Metadata
from alluvia.delta.partitioning.spec import TIMES, parse_spec
from alluvia.delta.properties import (
    APPEND_ONLY,
    BLOOM_FILTERS,
    INDEXED_COLUMNS,
    ROLLUP,
    SORT_BY,
    TTL,
    TTL_COLUMN,
    Properties,
    read_properties,
)
from alluvia.delta.schema.serialization import arrow_schema, schema_fields
from alluvia.delta.schema.types import type_name
from alluvia.delta.schema.variants import VARIANT
from alluvia.delta.statistics.typed import has_bounds
from alluvia.errors import Invalid
from alluvia.nearest_name import hint

if TYPE_CHECKING:
    from alluvia.engine.conditions.constraints import ConstraintCheck


def row_check(constraints: Mapping[str, str], schema: pa.Schema) -> ConstraintCheck | None:
    """Return the check of constraints on rows of a schema; None without one.

    Raises `Unsupported`, naming a constraint that cannot be checked here.
    """
    if not constraints:
        return None
    from alluvia.engine.conditions.constraints import ConstraintCheck

    return ConstraintCheck(constraints, schema)


def check_layout(metadata: Metadata) -> None:
    """Raise `Invalid`, naming the property and the column, for an order or Bloom filters that files cannot have."""
    settings, schema = read_properties(metadata.configuration), arrow_schema(metadata.schema_string)
    if settings.cluster_by and settings.sort_by:
        raise Invalid(f"cluster_by: the table has sort_by too, and rows can have one order only: set {SORT_BY} to []")
    variants = {each.get("name") for each in schema_fields(metadata.schema_string) if each.get("type") == VARIANT}
    stored = pa.schema([each.with_type(pa.binary()) if each.name in variants else each for each in schema])
    _check_bloom_filters(settings.bloom_filters, stored)
    _check_sort(settings.sort_by, schema)
    _check_clustering(settings.cluster_by, settings.indexed_columns, stored, metadata.partition_columns)


def _check_bloom_filters(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        kind = schema.field(name).type if name in schema.names else None
        if kind is None or not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
            raise Invalid(f"property {BLOOM_FILTERS}: {name!r} is not a column of text or whole numbers")


def _check_sort(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            raise Invalid(f"sort_by: {name!r} is not a column of the schema{hint(name, schema.names)}")
        if pa.types.is_nested(schema.field(name).type):
            raise Invalid(f"sort_by: {name!r} is {type_name(schema.field(name).type)}, which cannot be sorted")


def _check_clustering(names: Sequence[str], indexed: int, schema: pa.Schema, partition_columns: Sequence[str]) -> None:
    leaves = list(_leaves(field for field in schema if field.name not in partition_columns))
    for at, name in enumerate(names):
        if name not in schema.names:
            raise Invalid(f"cluster_by: {name!r} is not a column of the schema{hint(name, schema.names)}")
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


def time_column(settings: Properties, schema: pa.Schema, partition_columns: tuple[str, ...]) -> str:
    """Return the column whose times say how old rows are. Raises `Invalid`, naming the property to set."""
    if settings.ttl_column:
        if settings.ttl_column not in schema.names:
            near = hint(settings.ttl_column, schema.names)
            raise Invalid(f"property {TTL_COLUMN}: {settings.ttl_column!r:.100} is not a column of the schema{near}")
        kind = schema.field(settings.ttl_column).type
        if not _is_time(kind):
            raise Invalid(f"property {TTL_COLUMN}: {settings.ttl_column} is {type_name(kind)}, not a timestamp or date")
        return settings.ttl_column
    columns = _times(settings, schema, partition_columns)
    if not columns:
        raise Invalid(f"property {TTL}: the table is not partitioned by a time, such as day(ts)")
    return columns[0]


def _times(settings: Properties, schema: pa.Schema, partition_columns: tuple[str, ...]) -> list[str]:
    """Return the columns whose times a table is partitioned by."""
    fields = parse_spec(settings.partition_by or partition_columns, schema).fields
    return [each.column for each in fields if _is_time(each.kind) and each.transform in (None, *TIMES)]


def check_ttl(metadata: Metadata) -> None:
    """Raise `Invalid` if a table's properties ask for expiry, and its rows cannot expire."""
    settings = read_properties(metadata.configuration)
    if settings.ttl_ms and ROLLUP in metadata.configuration:
        raise Invalid(
            f"property {TTL}: rows of a rollup cannot expire, because a late event would bring back their group with "
            f"that event alone; leave out {TTL}, and filter by time when you query the rollup"
        )
    if not settings.ttl_ms and not settings.ttl_column:
        return
    schema = arrow_schema(metadata.schema_string)
    time_column(settings, schema, metadata.partition_columns)
    if not _times(settings, schema, metadata.partition_columns):
        raise Invalid(
            f"property {TTL}: partition the table by a time, such as day({settings.ttl_column}): otherwise optimize "
            "puts rows of all ages into one file, and a file expires only with its youngest row"
        )
    if settings.ttl_ms and settings.append_only:
        raise Invalid(f"property {TTL}: rows of an append-only table cannot expire; leave out {TTL} or {APPEND_ONLY}")


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)
