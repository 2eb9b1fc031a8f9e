"""The events that a table holds already, where the job's rows would go: their ids, so that none comes a second time."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import IO, TypeAlias, cast

import orjson
import pyarrow as pa

from alluvia.clock import SystemClock
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.data_files.scan import check_positions, live_rows, open_parquet, unreadable
from alluvia.delta.deletion_vectors.storage import read_deletions
from alluvia.delta.lineage import undone_versions
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.partitioning.transforms import Key
from alluvia.delta.skipping.pruning import span_of
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, ObjectNotFound
from alluvia.operations.dedup import follow_window, held_events
from alluvia.store import Store
from alluvia_spark.backfill_job import scratch
from alluvia_spark.backfill_job.job import ROWS, Job
from alluvia_spark.backfill_job.repeats import LIVE, ids_of
from alluvia_spark.chunks import EVENT_ID, SOURCE, with_prints
from alluvia_spark.sources.lines import RangedFile

Values: TypeAlias = tuple[str | None, ...]
FETCH_BYTES = 8 << 20
TASK_BYTES = 256 << 20


def files_touched(snapshot: Snapshot, places: Iterable[tuple[Values, Key]]) -> list[AddFile]:
    """Return the files that can hold rows of some partition values."""
    spec = snapshot.partition_spec
    keys: dict[Values, list[Key]] = {}
    for values, key in places:
        keys.setdefault(values, []).append(key)
    ordered = {values: sorted(wanted) for values, wanted in keys.items()}
    columns = [snapshot.physical_name(name) for name in spec.identity_columns]

    def touched(file: AddFile) -> bool:
        own = ordered.get(tuple(file.partition_values.get(name) for name in columns))
        span = span_of(file, spec)
        if own is None or span is None:
            return own is not None
        at = bisect_left(own, span.low)
        return at < len(own) and own[at] <= span.high

    return [file for file in snapshot.files if touched(file)]


def recent_rejects(snapshot: Snapshot, since_ms: int) -> list[AddFile]:
    """Return the files of a rejects' table with the rejects that it knows: those within its window before a moment."""
    oldest_ms = since_ms - snapshot.settings.dedup_window_ms - FILE_AGE_MS_MAX
    return [file for file in snapshot.files if file.modification_time >= oldest_ms]


def plan_tasks(files: Sequence[AddFile]) -> list[list[AddFile]]:
    """Divide files among tasks by their size."""
    tasks: list[list[AddFile]] = []
    size = TASK_BYTES
    for file in files:
        if size >= TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(file)
        size += file.size
    return tasks


def encode_files(files: Iterable[AddFile]) -> bytes:
    """Return files as an object for a task."""
    return orjson.dumps([file.to_json() for file in files])


def decode_files(data: bytes) -> list[AddFile]:
    """Read what `encode_files` wrote."""
    return [AddFile.from_json(body) for body in orjson.loads(data)]


def live_ids(job: Job, table: int, version: int, files: Iterable[AddFile]) -> Iterator[pa.Table]:
    """Yield the identities of the rows of files of a version of one of the job's tables."""
    store = scratch.store_of(job, job.lake_uri)
    snapshot = _handle(store, job.targets[table].root).snapshot(version)
    for file in files:
        for _, rows in live_events(snapshot, store, file):
            yield ids_of(LIVE, with_prints(rows))


def known_contents(job: Job, prints: Sequence[bytes], until: int | None = None) -> Mapping[bytes, Collection[bytes]]:
    """Return the contents under which the job's table knows some fingerprints, by its window, as ingestion does it.

    What versions after `until` hold does not count.
    """
    handle = _handle(scratch.store_of(job, job.lake_uri), job.targets[ROWS].root)
    with handle.lock:
        undone = undone_versions(handle.newest().properties)
        if until is not None:
            undone = (*undone, (until + 1, sys.maxsize))
        return held_events(handle, follow_window(handle), prints, undone)


def live_events(snapshot: Snapshot, store: Store, file: AddFile) -> Iterator[tuple[int, pa.Table]]:
    """Yield the ids and sources of a file's live rows, with the position of the first of each part.

    Reads only these columns, and not the rest of the file unless it is small.
    """
    names = [name for name in (EVENT_ID, SOURCE) if name in snapshot.schema.names]
    plan = snapshot.read_plan(pa.schema([snapshot.schema.field(name) for name in names]))
    deleted = read_deletions(store, file, snapshot.locate)
    start = 0
    try:
        parquet = open_parquet(cast("IO[bytes]", _opened(store, snapshot.key(file), file.size)))
        check_positions(file, deleted, parquet.metadata.num_rows)
        for batch in parquet.iter_batches(columns=plan.stored_names(parquet.schema_arrow, file)):
            yield start, pa.Table.from_batches([live_rows(plan.fit(batch, file), deleted, start)])
            start += len(batch)
    except ObjectNotFound as error:
        raise Corrupt(f"data file {file.path} of version {snapshot.version} is missing") from error
    except UNREADABLE as error:
        raise unreadable(file, error) from error


@lru_cache(maxsize=4)
def _handle(store: Store, root: str) -> TableHandle:
    return WarmTable(store, root, root.rstrip("/"), SystemClock())


def _opened(store: Store, key: str, size: int) -> RangedFile:
    """Return an object as a file; a small one is fetched at once."""
    if size > FETCH_BYTES:
        return RangedFile(size, partial(store.get, key))
    data = store.get(key)
    return RangedFile(size, lambda start, end: data[start:end])
