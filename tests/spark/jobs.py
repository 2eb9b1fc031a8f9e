"""Backfill jobs without Spark: what their tasks leave, and the commit, on a lake's own store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.commit.event_window.id_files import ID_FOLDER, IdFiles
from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentAppend, TransactionExpired
from alluvia.operations.reading.scan import scan
from alluvia.operations.retention.vacuum_plan import SCRATCH_FOLDER
from alluvia.store import Store
from alluvia_spark.backfill_job import known_ids
from alluvia_spark.backfill_job.committing import Committed, commit
from alluvia_spark.backfill_job.job import ROWS, Counts, Job, JobOutcome, Target, Written
from alluvia_spark.backfill_job.repeats import divided
from alluvia_spark.chunks import CONTENT, HEAD, TAIL, with_prints

TRIES = 5
SMALL = (2, 2, 64)
"""How ids are divided: into ranges, each into pages, each with a filter of some bytes."""


def job_of(lake: Lake, table: str, run: str = "run", *, stores: Callable[..., Store] | None = None) -> Job:
    """Return a run of a job without rejects for a lake's table as it is now."""
    target = Target.of(lake.table(table).snapshot())
    return Job(
        lake_uri=lake.uri,
        arrival_us=lake.clock.now_us(),
        targets=(target, target),
        manifest="",
        folder=f"{target.root}{SCRATCH_FOLDER}backfill/job/",
        run=f"{target.root}{SCRATCH_FOLDER}backfill/runs/{run}/",
        stores=stores or (lambda *_, **__: lake.store),
    )


class Backfill:
    """A job that has written the events that its table did not hold when it began."""

    def __init__(
        self,
        lake: Lake,
        table: str,
        rows: pa.Table,
        contents: Sequence[bytes],
        parts: tuple[int, int, int] = SMALL,
        base: Snapshot | None = None,
    ) -> None:
        self._lake = lake
        self._began_ms = lake.clock.now_ms()
        self._job = job_of(lake, table, lake.clock.new_id())
        self.base = base or lake.table(table).snapshot()
        held = set(scan(self.base, lake.store, columns=["event_id"]).read_all()["event_id"].to_pylist())
        new = [each not in held for each in rows["event_id"].to_pylist()]
        hashes = [int.from_bytes(each, "little") for each in contents]
        rows = rows.append_column(CONTENT, pa.array(hashes, pa.uint32())).filter(pa.array(new, pa.bool_()))
        files = IdFiles(f"{ID_FOLDER}{self._job.run_id}/", max(1, len(rows)), *parts)
        self._put_ids(files, with_prints(rows).select([HEAD, TAIL, CONTENT]))
        stored = conform(rows.drop_columns([CONTENT]), self.base.schema)
        adds = lake.catalog.handle(table).writer(self.base).write(stored) if len(rows) else []
        self.outcome = JobOutcome(
            Counts(lines=len(rows), rows=len(rows)), (Written(ROWS, len(rows), tuple(adds)),), {ROWS: files}
        )

    def _put_ids(self, files: IdFiles, ids: pa.Table) -> None:
        parts = dict(divided(ids, files.ranges))
        for number in range(files.ranges):
            part = parts.get(number, ids.slice(0, 0))
            known_ids.put_ids(self._job, ROWS, files, number, part.sort_by(HEAD), self._lake.clock)

    def commit(self, job_id: str) -> Committed:
        """Commit the job. Raises `ConcurrentAppend` where its events have come meanwhile."""
        return commit(self._lake, job_id, (self.base, self.base), self._job, self.outcome, self._began_ms)


def backfill(lake: Lake, table: str, rows: pa.Table, contents: Sequence[bytes], job_id: str) -> Committed:
    """Run a job until it has committed, as the real one does."""
    for tries_left in reversed(range(TRIES)):
        try:
            return Backfill(lake, table, rows, contents).commit(job_id)
        except (ConcurrentAppend, TransactionExpired):
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")
