"""Commit data files that many processes have written: added to the table, or in the place of rows that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit, too_old
from alluvia.delta.data_files.writer import FileWriter
from alluvia.delta.log.actions import AddFile, Metadata, Txn
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.queries.tokens import masked
from alluvia.errors import Invalid, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.append.append import fits
from alluvia.operations.planning.layout import row_check
from alluvia.operations.planning.optimistic_retry import (
    applied,
    check_not_append_only,
    check_not_derived,
    check_txn,
    commit_planned,
)
from alluvia.operations.rows.row_changes import Plans
from alluvia.operations.rows.where_edits import DeleteEdit
from alluvia.operations.tables.evolve import plan_merge, protocol_for


@dataclass(frozen=True, slots=True)
class FileWrite:
    """A write of rows by many processes: what each must know of it. Made by `plan_write`.

    The files are written for `metadata`, which has the table's columns and what the write adds to them: of `new`,
    columns and fields of structs that the table has not, named in files by `seed`. They replace the rows for which the
    SQL condition `replaces` holds; None: they are appended.
    """

    name: str
    metadata: Metadata
    new: pa.Schema
    seed: str
    replaces: str | None = None
    txn: tuple[str, int] | None = None

    def snapshot(self, before: Snapshot) -> Snapshot:
        """Return a version of the table as the write makes it, without its rows."""
        return Snapshot(replace(before.state, metadata=self.metadata), before.root, before.name)


def plan_write(
    handle: TableHandle,
    snapshot: Snapshot,
    new: pa.Schema,
    replaces: str | None = None,
    txn: tuple[str, int] | None = None,
) -> FileWrite:
    """Plan a write, which adds what of the columns `new`, and of their structs, the table has not.

    Raises `Invalid` for what the table does not allow.
    """
    if txn is not None:
        check_txn(txn)
    check_not_derived(snapshot, "write")
    seed, before = handle.clock.new_id(), snapshot.state.metadata
    metadata = plan_merge(before, new, seed=seed) if len(new) else before
    if replaces is not None:
        check_not_append_only(snapshot, "overwrite")
        DeleteEdit(snapshot, replaces)  # raises what the delete would
    return FileWrite(snapshot.name, metadata, new, seed, replaces, txn)


def file_writer(handle: TableHandle, write: FileWrite, base: Snapshot) -> FileWriter:
    """Return what writes the files of a write. It raises `Invalid` for rows that break a rule of the table.

    Rows that replace others must be of those that are replaced.
    """
    snapshot = write.snapshot(base)
    checks = row_check(snapshot.settings.constraints, snapshot.schema)
    if write.replaces is None:
        return handle.writer(snapshot, checks)
    from alluvia.engine.conditions.condition import condition  # loads what reads conditions

    parsed = condition(write.replaces, snapshot.schema)

    def check(rows: pa.Table) -> None:
        if checks is not None:
            checks(rows)
        for batch in rows.to_batches():
            if len(parsed.filter(batch)) < len(batch):
                msg = f"a row does not match {write.replaces!r}, which says what is replaced: leave such rows out"
                raise Invalid(msg)

    return handle.writer(snapshot, check)


def commit_written(handle: TableHandle, write: FileWrite, adds: Sequence[AddFile]) -> Commit:
    """Commit the files of a write in one commit, once for each `txn`.

    Files that are appended rebase over other writers'. Those that replace rows replace what is there when they are
    committed. Raises `Invalid` where the table's columns or rules are others by now, or the files too old: nothing was
    committed then.
    """
    work = _Work(handle, write, adds)
    commit, newest, _ = commit_planned(handle, work.plan)
    if commit is None:
        return Commit(newest.version, newest.timestamp_ms, 0, 0)
    return replace(commit, rows=sum(add.num_records or 0 for add in adds), files=len(adds))


class _Work:
    """The plans of one write."""

    def __init__(self, handle: TableHandle, write: FileWrite, adds: Sequence[AddFile]) -> None:
        self._handle = handle
        self._write = write
        self._adds = adds
        text = write.replaces
        self._deletes = None if text is None else Plans(handle, "overwrite", lambda now: DeleteEdit(now, text))

    def plan(self, snapshot: Snapshot) -> Changes | None:
        """Return what to commit on a version; None if the transaction is in it already, or there is nothing to do."""
        write, before = self._write, snapshot.state.metadata
        if write.txn is not None and applied(snapshot, write.txn) is not None:
            return None
        metadata = self._metadata(snapshot)
        changes = self._replaced(snapshot)
        if not self._adds and not changes.removes and write.txn is None and metadata == before:
            return None
        if changes.cdc and self._adds:
            raise Unsupported(
                f"table {self._handle.name} has a change data feed: replace whole files only, or delete the rows first"
            )
        changes.adds = [*changes.adds, *self._adds]
        changes.txns = () if write.txn is None else [Txn(*write.txn, self._handle.clock.now_ms())]
        changes.metadata = None if metadata == before else metadata
        changes.protocol = protocol_for(snapshot.protocol, metadata)
        changes.metrics = {}
        return changes

    def _metadata(self, snapshot: Snapshot) -> Metadata:
        """Return the table's metadata with the new columns. Raises `Invalid` where the files do not fit it."""
        write, before = self._write, snapshot.state.metadata
        metadata = plan_merge(before, write.new, seed=write.seed) if len(write.new) else before
        same = before.id == write.metadata.id and fits(write.metadata, metadata)
        if not same or too_old(self._adds, self._handle.clock.now_ms()):
            why = "files grew too old" if same else "table's columns or properties changed"
            raise Invalid(f"{self._handle.name}: the {why} in the meantime: write again")
        return metadata

    def _replaced(self, snapshot: Snapshot) -> Changes:
        if self._deletes is None or self._write.replaces is None:
            return Changes("WRITE", {"mode": "Append"})
        changes = self._deletes.plan(snapshot)
        if changes is None:
            edit = DeleteEdit(snapshot, self._write.replaces)
            changes = Changes("WRITE", can_match=edit.matcher(snapshot), predicates=(edit.reads,))
        changes.operation = "WRITE"
        changes.parameters = {"mode": "Overwrite", "predicate": masked(self._write.replaces)}
        return changes
