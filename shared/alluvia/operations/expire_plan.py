"""Which data files have expired by `alluvia.ttl`: those that the log alone proves to hold only older rows. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.log.actions import AddFile, Metadata
from alluvia.table.partitioning.spans import tagged_span
from alluvia.table.partitioning.spec import TIMES, parse_spec
from alluvia.table.partitioning.transforms import key_part
from alluvia.table.properties import APPEND_ONLY, ROLLUP, TTL, TTL_COLUMN, Properties, read_properties
from alluvia.table.scan import Scan
from alluvia.table.schema.moments import is_zoned
from alluvia.table.schema.serialization import arrow_schema
from alluvia.table.schema.type_names import type_name
from alluvia.table.skipping.predicate import Comparison, IsNull, Or
from alluvia.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """The files whose rows all have a time in `column` before `before`."""

    column: str
    before: date
    files: tuple[AddFile, ...]


def plan_expiry(snapshot: Snapshot, now_ms: int, ttl_ms: int) -> ExpiryPlan:
    """Return the files of which every row is older than `ttl_ms`. Raises `Invalid` if the table has no time column.

    A file stays unless its statistics, its partition value or the tag of its partition prove it: so does one without
    bounds, and one with a null in the column. A row with a date is as old as the end of its day.
    """
    column = time_column(snapshot.settings, snapshot.schema, snapshot.partition_columns)
    before = _value(now_ms - ttl_ms, snapshot.schema.field(column).type)
    newer = Scan(snapshot, Or((Comparison((column,), ">=", before), IsNull((column,)))))
    some_older = Scan(snapshot, Comparison((column,), "<", before)).files
    gone = (file for file in some_older if not newer.can_match(file) or _tag_is_older(snapshot, file, column, before))
    return ExpiryPlan(column, before, tuple(gone))


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


def _value(moment_ms: int, kind: pa.DataType) -> date:
    """Return a moment as a value of a column; the first one that there is for moments before the year 1."""
    since = datetime(1970, 1, 1, tzinfo=UTC)
    try:
        moment = since + timedelta(milliseconds=moment_ms)
    except OverflowError:
        moment = datetime.min.replace(tzinfo=UTC)
    if pa.types.is_date(kind):
        return moment.date()
    return moment if is_zoned(kind) else moment.replace(tzinfo=None)


def _tag_is_older(snapshot: Snapshot, file: AddFile, column: str, before: date) -> bool:
    """Whether the tag of a file's partition proves that its rows are older, as it may for a file without statistics."""
    fields = snapshot.partition_spec.transforms
    span = tagged_span(file, {str(field): field.values for field in fields})
    if span is None:
        return False
    for field, low, high in zip(fields, span.low, span.high, strict=True):
        if field.column == column and field.transform in TIMES and high < key_part(field, before):
            return True
        if low != high:  # the later parts of a key are bounded only where the earlier ones are equal
            return False
    return False
