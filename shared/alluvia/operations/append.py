"""Appending rows: data files, then one commit that rebases over whatever wins before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alluvia.errors import ConcurrentTransaction, Invalid
from alluvia.log.actions import AddFile, Txn
from alluvia.table.handle import TableHandle
from alluvia.table.rows import conformed
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes, Commit

CHUNK_ROWS = 1 << 20


def append(handle: TableHandle, rows: Any, txn: tuple[str, int] | None = None) -> Commit:
    """Append rows (a pyarrow Table or RecordBatchReader, or a list of dicts) in one commit.

    On a handle that knows the table this costs one PUT for each partition's file and one for the commit. With `txn`
    (an application's id and its number), rows that the application has committed before under that number or a higher
    one are not appended again; the commit that is returned is then the table's newest. Raises `Invalid` for rows that
    do not fit.
    """
    snapshot = handle.at_hand()
    if txn is not None and (done := _applied(handle.newest(), txn)) is not None:
        return done
    writer = handle.writer(snapshot)
    adds = [add for chunk in conformed(rows, snapshot.schema, CHUNK_ROWS) for add in writer.write(chunk)]
    return commit_files(handle, adds, txn, snapshot)


def commit_files(
    handle: TableHandle,
    adds: Sequence[AddFile],
    txn: tuple[str, int] | None = None,
    base: Snapshot | None = None,
    age_ms_max: int | None = None,
) -> Commit:
    """Commit data files that were written for this table, once for each `txn`.

    Without files nothing is committed unless there is a `txn` to record. `base` is the snapshot that they were written
    for, the handle's by default.
    """
    snapshot = base or handle.at_hand()
    if txn is not None:
        _check_txn(txn)
        if (done := _applied(handle.newest(), txn)) is not None:
            return done
    elif not adds:
        return Commit(snapshot.version, snapshot.timestamp_ms, 0, 0)
    transaction = handle.transaction(snapshot) if age_ms_max is None else handle.transaction(snapshot, age_ms_max)
    changes = Changes(
        "WRITE",
        {"mode": "Append"},
        adds=adds,
        txns=() if txn is None else [Txn(txn[0], txn[1], handle.clock.now_ms())],
    )
    try:
        commit = transaction.commit(changes)
    except ConcurrentTransaction:
        if txn is None or (done := _applied(handle.newest(), txn)) is None:
            raise
        return done
    assert commit is not None  # noqa: S101 - only an on_lost callback gives up
    return commit


def _check_txn(txn: tuple[str, int]) -> None:
    app_id, version = txn
    if not app_id or not isinstance(version, int) or isinstance(version, bool) or version < 0:
        msg = f"txn: expected a text and a number from 0, got {txn!r}"
        raise Invalid(msg)


def _applied(snapshot: Snapshot, txn: tuple[str, int]) -> Commit | None:
    """Return a commit for a transaction that the table holds already."""
    recorded = snapshot.state.txns.get(txn[0])
    if recorded is None or recorded.version < txn[1]:
        return None
    return Commit(snapshot.version, snapshot.timestamp_ms, 0, 0)
