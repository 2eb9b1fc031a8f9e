"""Append rows: write data files, then one commit that rebases over concurrent commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from alluvia.commit.changes import Changes
from alluvia.commit.conflicts import harmless_change
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit, Transaction, too_old
from alluvia.delta.log.actions import AddFile, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.schema.rows import columns_of_rows, conformed
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentTransaction, MetadataChanged, TransactionExpired, Unsupported
from alluvia.operations.planning.layout import row_check
from alluvia.operations.planning.optimistic_retry import applied, check_not_rollup, check_txn, discarding

CHUNK_BYTES = 256 << 20
"""Rows of about so many bytes are sorted and written at once."""


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
    snapshot = _base(handle, txn) or handle.fitting(columns_of_rows(rows))
    check_not_rollup(snapshot, "append")
    if txn is not None and (done := applied(snapshot, txn)) is not None:
        handle.store.check_lasts()
        return done
    transaction = handle.transaction(snapshot)
    writer = handle.writer(snapshot, row_check(snapshot.settings.constraints, snapshot.schema))
    adds = [add for chunk in conformed(rows, snapshot.schema, CHUNK_BYTES) for add in writer.write(chunk)]
    before_commit()
    with discarding(handle, snapshot, adds):
        return _commit(handle, transaction, snapshot, adds, txn, info or {})


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
    check_not_rollup(snapshot, "commit_files")
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
    transaction: Transaction,
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
