"""Whether rows of a table can expire, and by which column: `alluvia.ttl`. Pure."""

from __future__ import annotations

import pyarrow as pa

from alluvia.delta.log.actions import Metadata
from alluvia.delta.partitioning.spec import TIMES, parse_spec
from alluvia.delta.properties import APPEND_ONLY, ROLLUP, TTL, TTL_COLUMN, Properties, read_properties
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.schema.type_names import type_name
from alluvia.errors import Invalid


def time_column(settings: Properties, schema: pa.Schema, partition_columns: tuple[str, ...]) -> str:
    """Return the column whose times say how old rows are. Raises `Invalid`, naming the property to set."""
    if settings.ttl_column:
        if settings.ttl_column not in schema.names:
            raise Invalid(f"property {TTL_COLUMN}: {settings.ttl_column!r:.100} is not a column of the schema")
        kind = schema.field(settings.ttl_column).type
        if not _is_time(kind):
            raise Invalid(f"property {TTL_COLUMN}: {settings.ttl_column} is {type_name(kind)}, not a timestamp or date")
        return settings.ttl_column
    found = _times(settings, schema, partition_columns)
    if not found:
        raise Invalid(f"property {TTL}: the table is not partitioned by a time, such as day(ts)")
    return found[0]


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
