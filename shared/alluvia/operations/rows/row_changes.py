"""Changing rows in one commit, whatever the edit: what delete, update and upsert share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import AddFile, Txn
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.evaluators import at_one_time
from alluvia.operations.planning.optimistic_retry import (
    applied,
    check_not_append_only,
    check_not_derived,
    check_txn,
    commit_planned,
    discard,
)
from alluvia.operations.rows.edits import Edit, RowChanges
from alluvia.operations.rows.parts import Outcome, Part, new_files
from alluvia.operations.rows.rewriting import Rewriter


class FileWorker(Protocol):
    """Works on files for one edit, and keeps the `parts` for a later plan."""

    @property
    def edit(self) -> Edit:
        """Return the edit."""

    @property
    def parts(self) -> Sequence[Part]:
        """Return what was done."""

    def work(self, snapshot: Snapshot, candidates: Sequence[AddFile], /) -> list[Outcome]:
        """Bring the outcomes up to a snapshot. `candidates` are its files that can match."""


MakeWorker = Callable[[TableHandle, Snapshot, Edit], FileWorker]


def change_rows(
    handle: TableHandle,
    name: str,
    read_edit: Callable[[Snapshot], Edit],
    worker: MakeWorker = Rewriter,
    txn: tuple[str, int] | None = None,
) -> RowChanges:
    """Carry out an edit in one commit, or in none if no row changes. `read_edit` returns it for the current table.

    Only files that can hold rows that change are read, by the `worker`. With `txn`, an application and its number,
    the edit is carried out once: where the table has that number or a higher one, nothing is done. Raises `Invalid` for
    an append-only table, with the operation's `name`.
    """
    plans = Plans(handle, name, read_edit, worker, txn)
    commit, _, tries = commit_planned(handle, plans.plan)
    if commit is None:
        return replace(plans.done, tries=tries)
    return replace(plans.done, version=commit.version, timestamp_ms=commit.timestamp_ms, tries=tries)


class Plans:
    """The plans of one operation: each takes over from the one before what still holds. `done` is what the last did."""

    done: RowChanges

    def __init__(
        self,
        handle: TableHandle,
        name: str,
        read_edit: Callable[[Snapshot], Edit],
        worker: MakeWorker = Rewriter,
        txn: tuple[str, int] | None = None,
    ) -> None:
        if txn is not None:
            check_txn(txn)
        self._txn = txn
        self._make_worker = worker
        self._handle = handle
        self._name = name
        self._read_edit = read_edit
        self._planned: tuple[Snapshot, FileWorker] | None = None

    def plan(self, snapshot: Snapshot) -> Changes | None:
        """Return what to commit on a version; None where nothing is to be done."""
        check_not_derived(snapshot, self._name)
        check_not_append_only(snapshot, self._name)
        if self._txn is not None and applied(snapshot, self._txn) is not None:
            self.done = RowChanges(snapshot.version, snapshot.timestamp_ms)
            return None
        worker = self._worker(snapshot)
        outcomes = worker.work(snapshot, worker.edit.candidates(snapshot))
        read = sum(outcome.rows > 0 or not outcome.changed for outcome in outcomes)
        self.done = RowChanges(snapshot.version, snapshot.timestamp_ms, files_read=read)
        changed = [outcome for outcome in outcomes if outcome.changed]
        inserted = sum(part.rows_inserted for part in worker.parts)
        if not changed and not inserted and self._txn is None:
            return None
        changes = self._changes(snapshot, worker, outcomes)
        deleted = [outcome.deleted for outcome in changed]
        known = [number for number in deleted if number is not None]
        self.done = replace(
            self.done,
            rows_inserted=inserted,
            rows_updated=sum(outcome.updated for outcome in changed),
            rows_deleted=sum(known) if len(known) == len(deleted) else None,
            rows_copied=sum(outcome.copied for outcome in changed),
            files_added=len(changes.adds),
            files_removed=len(changes.removes),
        )
        changes.metrics = worker.edit.metrics(self.done, changes)
        return changes

    def _worker(self, snapshot: Snapshot) -> FileWorker:
        if self._planned is None or self._planned[0].state.metadata != snapshot.state.metadata:
            lost = self._planned
            with at_one_time():
                edit = self._read_edit(snapshot)
            self._planned = snapshot, self._make_worker(self._handle, snapshot, edit)
            if lost is not None:
                discard(self._handle, snapshot, new_files(lost[1].parts))
        return self._planned[1]

    def _changes(self, snapshot: Snapshot, worker: FileWorker, outcomes: Sequence[Outcome]) -> Changes:
        now_ms = self._handle.clock.now_ms()
        changed = [outcome for outcome in outcomes if outcome.changed]
        adds = [outcome.add for outcome in changed if outcome.add is not None]
        read = frozenset(each.file.key for each in outcomes if each.changed or each.sources is not None)
        return Changes(
            worker.edit.operation,
            dict(worker.edit.parameters),
            adds=[*adds, *(add for part in worker.parts for add in part.adds)],
            removes=[outcome.file.removed(now_ms, data_change=True) for outcome in changed],
            cdc=[file for part in worker.parts for file in part.cdc],
            can_match=worker.edit.matcher(snapshot),
            predicates=(worker.edit.reads,),
            files_read=read,
            txns=() if self._txn is None else [Txn(*self._txn, now_ms)],
        )
