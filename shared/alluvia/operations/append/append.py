"""Append rows: write data files, then one commit that rebases over concurrent commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.conflicts import harmless_change
from alluvia.commit.handle import TableHandle, TableTransaction
from alluvia.commit.transaction import Commit, too_old
from alluvia.commit.versions import version_with
from alluvia.delta.data_files.writer import FileWriter
from alluvia.delta.log.actions import AddFile, Metadata, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.schema.caller_rows import columns_of_rows, conformed
from alluvia.delta.schema.column_mapping import MODE, ColumnMapping, physical_schema
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentTransaction, Invalid, MetadataChanged, TransactionExpired, Unsupported
from alluvia.operations.planning.layout import row_check
from alluvia.operations.planning.optimistic_retry import (
    applied,
    check_not_derived,
    check_txn,
    commit_planned,
    discard,
    discarding,
    discarding_unfinished,
)
from alluvia.operations.tables.evolve import plan_evolve, protocol_for

CHUNK_BYTES = 256 << 20
"""About the bytes of rows that are sorted and written at once."""
GATHERED_BYTES = 32 << 20
"""About the bytes of rows that are gathered of a table whose rows are not sorted."""


def append(
    handle: TableHandle,
    rows: Any,
    txn: tuple[str, int] | None = None,
    info: Mapping[str, Any] | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Commit:
    """Append rows (a pyarrow Table or RecordBatchReader, or a list of dicts) in one commit.

    On a handle that knows the table this costs one PUT for each file and one for the commit. With `txn`
    (an application's id and its number), rows that the application has committed before under that number or a higher
    one are not appended again; the commit that is returned is then the table's newest. `before_commit` is called when
    the files are written, and stops the commit by an exception. Raises `Invalid` for rows that
    do not fit.
    """
    snapshot = _base(handle, txn) or version_with(handle, columns_of_rows(rows))
    check_not_derived(snapshot, "append")
    if txn is not None and (done := applied(snapshot, txn)) is not None:
        handle.store.check_lasts()
        return done
    transaction = handle.transaction(snapshot)
    writer = handle.writer(snapshot, row_check(snapshot.settings.constraints, snapshot.schema))
    with discarding_unfinished(handle, snapshot) as adds:
        adds.extend(_written(writer, rows, snapshot.schema))
        before_commit()
    with discarding(handle, snapshot, adds):
        return _commit(handle, transaction, snapshot, adds, txn, info or {})


def _written(writer: FileWriter, rows: Any, schema: pa.Schema) -> Iterator[AddFile]:
    """Write rows to files in chunks. Each chunk is freed before the next one is read."""
    if isinstance(rows, pa.RecordBatchReader) and writer.keeps_order:
        return writer.write_in_order(conformed(rows, schema, GATHERED_BYTES))
    return chain.from_iterable(map(writer.write, conformed(rows, schema, CHUNK_BYTES)))


def commit_files(
    handle: TableHandle,
    adds: Sequence[AddFile],
    txn: tuple[str, int] | None = None,
    age_ms_max: int | None = None,
) -> Commit:
    """Commit data files that were written for this table, once for each `txn`.

    Without files nothing is committed unless there is a `txn` to record. Raises `Unsupported` for a table with CHECK
    constraints: nothing has checked the files' rows against them. Raises `TransactionExpired` for files that are over
    12 hours old: vacuum may have deleted some.
    """
    snapshot = _base(handle, txn) or handle.at_hand()
    check_not_derived(snapshot, "commit_files")
    constraints = snapshot.settings.constraints
    if adds and constraints:
        msg = f"table {handle.name} has the CHECK constraint {min(constraints)!r}: append rows, which can be checked"
        raise Unsupported(msg)
    if txn is not None and (done := applied(snapshot, txn)) is not None:
        handle.store.check_lasts()
        return done
    transaction = handle.transaction(snapshot) if age_ms_max is None else handle.transaction(snapshot, age_ms_max)
    _check_young(handle, adds)
    return _commit(handle, transaction, snapshot, adds, txn)


def _base(handle: TableHandle, txn: tuple[str, int] | None) -> Snapshot | None:
    """Return the newest version if there is a `txn`, which must be looked up there; None if the current one will do."""
    if txn is None:
        return None
    check_txn(txn)
    return handle.newest()


def _commit(
    handle: TableHandle,
    transaction: TableTransaction,
    snapshot: Snapshot,
    adds: Sequence[AddFile],
    txn: tuple[str, int] | None,
    info: Mapping[str, Any] = MappingProxyType({}),
) -> Commit:
    if not adds and txn is None:
        return Commit(snapshot.version, snapshot.timestamp_ms, 0, 0)
    changes = Changes(
        "WRITE",
        {"mode": "Append"},
        adds=adds,
        txns=() if txn is None else [Txn(txn[0], txn[1], handle.clock.now_ms())],
        info=info,
    )

    def after_loss(_: Sequence[CommitActions]) -> Changes:
        _check_young(handle, adds)
        return changes

    while True:
        try:
            commit = transaction.commit(changes, after_loss)
        except ConcurrentTransaction:
            if txn is None or (done := applied(handle.newest(), txn)) is None:
                raise
            return done
        except TransactionExpired:
            newest = handle.newest()
            if txn is not None and (done := applied(newest, txn)) is not None:
                return done
            _check_still_fitting(handle, snapshot, newest, adds)
            transaction = handle.transaction(newest)
            continue
        assert commit is not None  # noqa: S101 - `after_loss` does not give up
        return commit


def _check_still_fitting(handle: TableHandle, before: Snapshot, after: Snapshot, adds: Sequence[AddFile]) -> None:
    """Raise unless files that were written for one version may be committed by a transaction that starts on another."""
    if not harmless_change(before.state.metadata, after.state.metadata):
        msg = f"the schema or properties of {handle.name} changed since version {before.version}: append again"
        raise MetadataChanged(msg)
    _check_young(handle, adds)


def _check_young(handle: TableHandle, adds: Sequence[AddFile]) -> None:
    if too_old(adds, handle.clock.now_ms()):
        raise TransactionExpired(f"the files to append to {handle.name} are too old to be committed: append again")


def append_evolving(
    handle: TableHandle,
    rows: Any,
    txn: tuple[str, int] | None = None,
    info: Mapping[str, Any] | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Commit:
    """Append rows as `append` does; columns that only they have become nullable columns of the table.

    Their types are those of the rows. Raises `Invalid`, naming the column, for one whose type cannot be told or would
    change.
    """
    if txn is not None:
        check_txn(txn)
    snapshot = version_with(handle, columns_of_rows(rows))
    if not columns_of_rows(rows) - set(snapshot.schema.names):
        return append(handle, rows, txn, info, before_commit)
    work = _Evolving(handle, rows, txn, info or {}, before_commit)
    commit, newest, _ = commit_planned(handle, work.plan)
    return commit or Commit(newest.version, newest.timestamp_ms, 0, 0)


class _Evolving:
    """The plans of one append: its files are written once, for the first."""

    def __init__(
        self,
        handle: TableHandle,
        rows: Any,
        txn: tuple[str, int] | None,
        info: Mapping[str, Any],
        before_commit: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._rows = rows
        self._txn = txn
        self._info = info
        self._before_commit = before_commit
        self._seed = handle.clock.new_id()
        self._written: tuple[Metadata, list[AddFile]] | None = None

    def plan(self, snapshot: Snapshot) -> Changes | None:
        """Return what to commit on a version; None if the transaction is in it already."""
        if self._txn is not None and applied(snapshot, self._txn) is not None:
            return None
        before = snapshot.state.metadata
        known = {*snapshot.schema.names}
        new = [field for field in _fields(self._rows) if field.name not in known]
        metadata = plan_evolve(before, pa.schema(new), None, seed=self._seed) if new else before
        if self._written is not None:
            old = too_old(self._written[1], self._handle.clock.now_ms())
            if old or not fits(self._written[0], metadata):
                if not old:
                    discard(self._handle, snapshot, self._written[1])
                if isinstance(self._rows, pa.RecordBatchReader):
                    why = "files grew too old" if old else "table's columns or properties changed"
                    raise Invalid(f"{self._handle.name}: the {why} in the meantime: append again")
                self._written = None
        if self._written is None:
            with discarding_unfinished(self._handle, snapshot) as adds:
                adds.extend(self._write(snapshot, metadata))
            self._written = metadata, adds
        self._before_commit()
        return Changes(
            "WRITE",
            {"mode": "Append"},
            adds=self._written[1],
            metadata=None if metadata == before else metadata,
            protocol=protocol_for(snapshot.protocol, metadata),
            txns=() if self._txn is None else [Txn(*self._txn, self._handle.clock.now_ms())],
            info=self._info,
        )

    def _write(self, snapshot: Snapshot, metadata: Metadata) -> Iterator[AddFile]:
        state = replace(snapshot.state, metadata=metadata)
        evolved = Snapshot(state, snapshot.root, snapshot.name)
        writer = self._handle.writer(evolved, row_check(evolved.settings.constraints, evolved.schema))
        return _written(writer, self._rows, evolved.schema)


def _fields(rows: Any) -> Sequence[pa.Field]:
    """Return the columns of a caller's rows, with types that those of dicts seem to have."""
    if isinstance(rows, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return [field.with_nullable(True) for field in rows.schema]
    fields = []
    for name in dict.fromkeys(name for row in rows for name in row):
        try:
            fields.append(pa.field(name, pa.array([row.get(name) for row in rows]).type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"column {name}: its values do not have one type: {error}") from error
    return fields


def fits(written: Metadata, planned: Metadata) -> bool:
    """Whether files that were written for some metadata fit what a plan makes of the table's."""
    before, now = _stored(written), _stored(planned)
    return (
        written.partition_columns == planned.partition_columns
        and written.configuration == planned.configuration
        and all(name in now and now[name].equals(field, check_metadata=True) for name, field in before.items())
        and all(field.nullable for name, field in now.items() if name not in before)
    )


def _stored(metadata: Metadata) -> dict[str, pa.Field]:
    """Return the columns of files, by their names in the table."""
    physical = physical_schema(metadata.schema_string, ColumnMapping(metadata.configuration.get(MODE, "none").lower()))
    return dict(zip(arrow_schema(metadata.schema_string).names, physical, strict=True))
