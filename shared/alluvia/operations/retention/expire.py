"""Expire: take rows that are older than `alluvia.ttl` out of a table, file by file. No data file is read or written."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from alluvia.commit.changes import EXPIRE, Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import AddFile, Txn
from alluvia.delta.partitioning.spec import TIMES
from alluvia.delta.partitioning.transforms import key_part, tagged_span
from alluvia.delta.schema.types import is_zoned
from alluvia.delta.skipping.predicate import Comparison, IsNull, Or
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.planning.layout import time_column
from alluvia.operations.planning.optimistic_retry import check_not_append_only, commit_planned


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


EXPIRED = "alluvia.expired"
"""The application id under which such commits leave a mark that outlives them, when clean-up takes them."""


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What expired, or would expire in a dry run: `files` by path, their `rows` (None if unknown) and bytes.

    `column` and `before` say which rows have expired; both are None for a table without `alluvia.ttl`. `version` is
    the commit's, or the newest one if there was nothing to do.
    """

    dry_run: bool
    version: int
    files: tuple[str, ...] = ()
    rows: int | None = 0
    bytes: int = 0
    column: str | None = None
    before: date | None = None


def expire(handle: TableHandle, *, ttl_of: TableHandle | None = None, dry_run: bool = False) -> ExpireReport:
    """Remove the files whose rows are all older than the table's `alluvia.ttl`, in one commit; none if there are none.

    Without a ttl of its own, a table has that of `ttl_of`. Rows of a file in which some are younger stay until all are
    older. The commit rebases over appends, and is planned again over commits that changed a file of it. Vacuum deletes
    the files after the table's retention; until then older versions can be read and restored. A dropped table is left
    alone. Raises `Invalid` for an append-only table, and if the table has no time to expire by.
    """
    done: list[ExpiryPlan] = []

    def plan(snapshot: Snapshot) -> Changes | None:
        expiry = _planned(handle, snapshot, ttl_of)
        done[:] = [] if expiry is None else [expiry]
        if expiry is None or not expiry.files or dry_run:
            return None
        check_not_append_only(snapshot, "expire")
        now_ms = handle.clock.now_ms()
        return Changes(
            EXPIRE,
            {"column": expiry.column, "before": expiry.before.isoformat()},
            removes=[file.removed(now_ms, data_change=True) for file in expiry.files],
            txns=[Txn(EXPIRED, snapshot.version, now_ms)],
            metrics={"numDeletedRows": _rows(expiry) or 0, "numRemovedBytes": sum(file.size for file in expiry.files)},
        )

    newest = handle.newest(dropped=True)
    if is_dropped(newest.properties) or not (newest.settings.ttl_ms or _ttl_ms(ttl_of)):
        return ExpireReport(dry_run, newest.version)
    commit, snapshot, _ = commit_planned(handle, plan)
    version = snapshot.version if commit is None else commit.version
    if not done:
        return ExpireReport(dry_run, version)
    [expiry] = done
    paths, size = tuple(file.path for file in expiry.files), sum(file.size for file in expiry.files)
    return ExpireReport(dry_run, version, paths, _rows(expiry), size, expiry.column, expiry.before)


def has_expired(snapshot: Snapshot) -> bool:
    """Whether rows of a table have expired, in its newest version or in any before."""
    mark = snapshot.state.txns.get(EXPIRED)
    return mark is not None and mark.version >= 0


def _planned(handle: TableHandle, snapshot: Snapshot, ttl_of: TableHandle | None) -> ExpiryPlan | None:
    ttl_ms = snapshot.settings.ttl_ms or _ttl_ms(ttl_of)
    return plan_expiry(snapshot, handle.clock.now_ms(), ttl_ms) if ttl_ms else None


def _ttl_ms(handle: TableHandle | None) -> int:
    try:
        return 0 if handle is None else handle.newest().settings.ttl_ms
    except TableNotFound:
        return 0


def _rows(plan: ExpiryPlan) -> int | None:
    counts = [file.live_records for file in plan.files]
    known = [number for number in counts if number is not None]
    return sum(known) if len(known) == len(counts) else None
