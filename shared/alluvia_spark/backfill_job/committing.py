"""What a job has written goes into its two tables in one transaction, with the mark that the job is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.commit.changes import Changes
from alluvia.commit.conflicts import harmless_change
from alluvia.commit.event_window.id_files import prints_of, range_prints
from alluvia.commit.event_window.window import DedupWindow
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.log.actions import Txn
from alluvia.delta.protocols import has_domains
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentAppend, Conflict, MetadataChanged, TableNotFound, TransactionExpired
from alluvia.operations.dedup import follow_window, read_file
from alluvia.operations.planning.optimistic_retry import applied
from alluvia.operations.tables.restore import BACKFILL
from alluvia.operations.transactions.lake_commit import SNAPSHOT
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia_spark.backfill_job import known_ids
from alluvia_spark.backfill_job.job import REJECTS, ROWS, Job, JobOutcome

TXN_VERSION = 1
TRIES_MAX = 100


class Committed(NamedTuple):
    """A version of the table that holds a job's rows, and whether another run of the job has put them there."""

    version: int
    already_applied: bool


def is_done(snapshot: Snapshot, job_id: str) -> bool:
    """Whether a version of a table holds a job's rows."""
    return applied(snapshot, _txn(job_id)) is not None


def done_before(snapshot: Snapshot, job_id: str) -> int:
    """Return when a restore took a job's rows back, in ms; 0 for never."""
    known = snapshot.state.txns.get(_txn(job_id)[0])
    return 0 if known is None else known.last_updated or 0


def commit(
    lake: Lake, job_id: str, bases: Sequence[Snapshot], job: Job, outcome: JobOutcome, began_ms: int
) -> Committed:
    """Commit a job's rows and rejects: all of them or nothing. `bases` are the tables for which they were written.

    `began_ms` is when the run began that has written them, or has found files young enough (`REUSE_AGE_MS_MAX`).
    Each commit carries the identities of its rows, or names the objects that have them, so that ingestion and other
    jobs know them. Raises `AlluviaError` where the counts of what was done with the lines do not agree, and
    `ConcurrentAppend` where others have brought events or rejects of the job since its base: then it must leave these
    out.

    A table that other libraries may write takes part in no transaction: then the rejects are committed before the
    rows, which make the job done. Raises `TableNotFound`, `MetadataChanged` where the files do not fit the table any
    more, `TransactionExpired` where vacuum may have deleted some, the last `Conflict` after many lost races, and
    `CommitUnknown`.
    """
    outcome.check()
    tables = [ROWS, *([REJECTS] if outcome.files(REJECTS) else [])]
    if all(has_domains(bases[table].protocol) for table in tables):
        return _commit_together(lake, job_id, bases, job, outcome, began_ms, tables)
    for table in tables[:0:-1]:
        _commit_together(lake, job_id, bases, job, outcome, began_ms, [table])
    return _commit_together(lake, job_id, bases, job, outcome, began_ms, [ROWS])


def _commit_together(
    lake: Lake,
    job_id: str,
    bases: Sequence[Snapshot],
    job: Job,
    outcome: JobOutcome,
    began_ms: int,
    tables: Sequence[int],
) -> Committed:
    lost: Conflict | None = None
    ids = {table: known_ids.commit_info(job, table, outcome) for table in tables}
    new = {table: _NewEvents(bases[table], job, table, outcome) for table in tables}
    for _ in range(TRIES_MAX):
        try:
            staged = StagedTables(lake.catalog, [bases[table].name for table in tables])
        except TableNotFound as error:
            raise TableNotFound(f"table {bases[ROWS].name!r} was dropped during the job") from error
        for table in tables:
            handle = staged.handle(bases[table].name)
            newest = handle.newest()
            _check_still_fitting(bases[table], newest)
            if table == ROWS and is_done(newest, job_id):
                return Committed(newest.version, already_applied=True)
            new[table].check(handle.inner)
            handle.checks.append(partial(new[table].check, handle.inner))
            txn = Txn(*_txn(job_id), lake.clock.now_ms())
            changes = Changes("WRITE", {"mode": "Append"}, adds=outcome.files(table), txns=[txn], info=ids[table])
            handle.transaction(newest).commit(changes)
        # Whatever vacuum deletes since this try has looked, it loses a race: vacuum commits before it deletes.
        if lake.clock.now_ms() - began_ms > FILE_AGE_MS_MAX:
            raise TransactionExpired(
                "the job's files are over 12 hours old, so vacuum may have deleted some: run it again"
            )
        try:
            versions = staged.commit(SNAPSHOT)
        except Conflict as error:
            lost = error
        else:
            name = bases[ROWS].name
            return Committed(versions.get(name) or lake.table(name).version, already_applied=False)
    raise type(lost or Conflict())(f"{bases[ROWS].name}: lost {TRIES_MAX} races: run the job again") from lost


class _NewEvents:
    """The events or rejects of a job, which must be new to their table when they are committed."""

    def __init__(self, base: Snapshot, job: Job, table: int, outcome: JobOutcome) -> None:
        self._base = base
        self._job = job
        self._table = table
        self._ids = outcome.ids.get(table)
        self._seen = base.version

    def check(self, handle: TableHandle) -> None:
        """Raise `ConcurrentAppend` where commits after the base, and after the last check, hold events of the job."""
        if self._ids is None or handle.at_hand().version == self._seen:
            return
        window = follow_window(handle)
        for prints in self._later(handle, window):
            if known_ids.holds_any(self._job, self._table, self._ids, prints):
                name = self._base.name
                raise ConcurrentAppend(f"events of the job came into {name} during the job: run the job again")
        self._seen = window.version

    def _later(self, handle: TableHandle, window: DedupWindow) -> Iterator[pa.Array]:
        """Yield the fingerprints that later commits have brought, those of id files range by range."""
        later = [ids.prints for ids in window.entries() if ids.version > self._seen]
        if later:
            yield prints_of(b"".join(later))
        for commit in window.files((), self._seen):
            for number in range(commit.files.ranges):
                data = read_file(handle, commit, number)
                if data is not None:
                    yield range_prints(commit.files, data)


def _check_still_fitting(before: Snapshot, after: Snapshot) -> None:
    if before.state.metadata.id != after.state.metadata.id:
        raise TableNotFound(f"table {before.name!r} was dropped during the job, and made anew")
    if not harmless_change(before.state.metadata, after.state.metadata):
        raise MetadataChanged(f"the schema or properties of {before.name} changed during the job: run the job again")


def _txn(job_id: str) -> tuple[str, int]:
    return f"{BACKFILL}{job_id}", TXN_VERSION
