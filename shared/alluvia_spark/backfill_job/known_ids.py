"""Files of the event ids of a job, which its tasks write before the commit: one for each range of fingerprints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.clock import Clock, SystemClock
from alluvia.commit.event_window.id_files import (
    IDS_IN_COMMIT_MAX,
    IdFiles,
    encode_range,
    files_info,
    heads_of,
    parts_of,
    range_pairs,
    range_prints,
)
from alluvia.commit.event_window.window import encode_event_ids
from alluvia.delta.log.committer import put_once
from alluvia_spark.backfill_job import scratch
from alluvia_spark.backfill_job.job import Job, JobOutcome


def put_ids(job: Job, table: int, layout: IdFiles, number: int, ids: pa.Table, clock: Clock | None = None) -> None:
    """Keep the identities and contents of a table's rows of one range, sorted by head, unless another task did so.

    That one has had the same rows. Raises `Unavailable` or `CommitUnknown` where the store does not answer.
    """
    store, key = scratch.store_of(job, job.lake_uri), _key(job, table, layout, number)
    data = encode_range(layout, number, ids)
    put_once(
        store,
        clock or SystemClock(),
        key,
        data,
        what=f"the object {key}",
        read=lambda: store.head(key),
        is_ours=lambda _: True,
    )


def holds_any(job: Job, table: int, layout: IdFiles, prints: pa.Array) -> bool:
    """Whether one of an array of fingerprints is that of a row of the job for a table. Reads one range at a time."""
    numbers = parts_of(heads_of(prints), layout.ranges)
    for number in sorted(pc.unique(numbers).to_pylist()):
        wanted = prints.filter(pc.equal(numbers, number))
        if pc.any(pc.is_in(range_prints(layout, _read(job, table, layout, number)), value_set=wanted)).as_py():
            return True
    return False


def commit_info(job: Job, table: int, outcome: JobOutcome) -> dict[str, Any]:
    """Return the identities of all of a job's rows for a table as a commit carries them, or names the objects."""
    layout, count = outcome.ids.get(table), outcome.rows_of(table)
    if layout is None or not count:
        return {}
    if count > IDS_IN_COMMIT_MAX:
        return files_info([replace(layout, ids=count)])
    pairs_by_range = [range_pairs(layout, _read(job, table, layout, number)) for number in range(layout.ranges)]
    prints, contents = ([each for pairs in pairs_by_range for each in pairs[at]] for at in (0, 1))
    return encode_event_ids(prints, contents)


def _read(job: Job, table: int, layout: IdFiles, number: int) -> bytes:
    return scratch.get_at(job, _key(job, table, layout, number))


def _key(job: Job, table: int, layout: IdFiles, number: int) -> str:
    return job.targets[table].root + layout.name(number)
