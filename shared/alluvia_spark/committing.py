"""What a job has written goes into its two tables in one transaction, with the mark that the job is done."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from alluvia.errors import ConcurrentAppend, Conflict, MetadataChanged, TableNotFound
from alluvia.lake import Lake
from alluvia.log.actions import Txn
from alluvia.operations.append import applied
from alluvia.operations.event_window import follow_window
from alluvia.operations.lake_commit import SNAPSHOT
from alluvia.operations.lake_transaction import StagedTables
from alluvia.operations.restore import BACKFILL
from alluvia.table.conflicts import harmless_change
from alluvia.table.handle import TableHandle
from alluvia.table.protocols import has_domains
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes
from alluvia_spark import known_ids
from alluvia_spark.job import REJECTS, ROWS, Job, JobOutcome

TXN_VERSION = 1
TRIES_MAX = 100
IDS_IN_COMMIT_MAX = 1 << 17
"""More identities than this, 2.8 MB of text, would make a commit too long."""


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


def commit(lake: Lake, job_id: str, bases: Sequence[Snapshot], job: Job, outcome: JobOutcome) -> Committed:
    """Commit a job's rows and rejects: all of them or nothing. `bases` are the tables for which they were written.

    The commit of at most `IDS_IN_COMMIT_MAX` rows carries their identities, so that ingestion knows them. Raises
    `ConcurrentAppend` where others have ingested events of the job since its base: then it must leave these out.

    A table that other libraries may write takes part in no transaction: then the rejects are committed before the
    rows, which make the job done. Raises `TableNotFound`, `MetadataChanged` where the files do not fit the table any
    more, the last `Conflict` after many lost races, and `CommitUnknown`.
    """
    tables = [ROWS, *([REJECTS] if outcome.files(REJECTS) else [])]
    if all(has_domains(bases[table].protocol) for table in tables):
        return _commit_together(lake, job_id, bases, job, outcome, tables)
    for table in tables[:0:-1]:
        _commit_together(lake, job_id, bases, job, outcome, [table])
    return _commit_together(lake, job_id, bases, job, outcome, [ROWS])


def _commit_together(
    lake: Lake, job_id: str, bases: Sequence[Snapshot], job: Job, outcome: JobOutcome, tables: Sequence[int]
) -> Committed:
    lost: Conflict | None = None
    ids = known_ids.commit_info(job, outcome.ranges) if ROWS in tables and outcome.rows <= IDS_IN_COMMIT_MAX else {}
    for _ in range(TRIES_MAX):
        try:
            staged = StagedTables(lake, [bases[table].name for table in tables])
        except TableNotFound as error:
            raise TableNotFound(f"table {bases[ROWS].name!r} was dropped during the job") from error
        for table in tables:
            handle = staged.handle(bases[table].name)
            newest = handle.newest()
            _check_still_fitting(bases[table], newest)
            if is_done(newest, job_id):
                if table == ROWS:
                    return Committed(newest.version, already_applied=True)
                continue
            if table == ROWS:
                check = partial(_check_new, handle.inner, bases[ROWS], job, outcome.ranges)
                check()
                handle.checks.append(check)
            txn = Txn(*_txn(job_id), lake.clock.now_ms())
            info = ids if table == ROWS else {}
            changes = Changes("WRITE", {"mode": "Append"}, adds=outcome.files(table), txns=[txn], info=info)
            handle.transaction(newest).commit(changes)
        try:
            versions = staged.commit(SNAPSHOT)
        except Conflict as error:
            lost = error
        else:
            name = bases[ROWS].name
            return Committed(versions.get(name) or lake.table(name).version, already_applied=False)
    raise type(lost or Conflict())(f"{bases[ROWS].name}: lost {TRIES_MAX} races: run the job again") from lost


def _check_new(handle: TableHandle, base: Snapshot, job: Job, ranges: int) -> None:
    """Raise `ConcurrentAppend` where commits after the base hold events of the job."""
    if handle.at_hand().version == base.version or not ranges:
        return
    later = [ids.prints for ids in follow_window(handle).entries() if ids.version > base.version]
    if later and known_ids.holds_any(job, ranges, b"".join(later)):
        raise ConcurrentAppend(f"events of the job came into {base.name} during the job: run the job again")


def _check_still_fitting(before: Snapshot, after: Snapshot) -> None:
    if before.state.metadata.id != after.state.metadata.id:
        raise TableNotFound(f"table {before.name!r} was dropped during the job, and made anew")
    if not harmless_change(before.state.metadata, after.state.metadata):
        raise MetadataChanged(f"the schema or properties of {before.name} changed during the job: run the job again")


def _txn(job_id: str) -> tuple[str, int]:
    return f"{BACKFILL}{job_id}", TXN_VERSION
