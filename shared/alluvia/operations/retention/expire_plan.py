"""Which data files have expired by `alluvia.ttl`: those that the log alone proves to hold only older rows. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.spans import tagged_span
from alluvia.delta.partitioning.spec import TIMES
from alluvia.delta.partitioning.transforms import key_part
from alluvia.delta.schema.timestamp_types import is_zoned
from alluvia.delta.skipping.predicate import Comparison, IsNull, Or
from alluvia.delta.snapshot import Snapshot
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.planning.ttl import time_column


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
