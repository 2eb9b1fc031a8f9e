"""A job's record in the lake: the first run of a job id writes it, and every later run of that id does the same work.

It fixes when the job began, which bytes it reads (the manifest that it names lists them) and which columns the table
has. So rows are the same whichever run writes them, a file that appears later in the source's folder belongs to no run
of the job, and a line is a row in every run or a reject in every run. It also names the table by its id, so that a
table that has its name later gets no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import orjson
import pyarrow as pa

from alluvia.backfill_jobs import check_job_id
from alluvia.clock import Clock
from alluvia.delta.log.committer import put_once
from alluvia.errors import Corrupt, Invalid, ObjectNotFound
from alluvia.store import Store
from alluvia_spark.sources.files import SourceOptions
from alluvia_spark.sources.manifest import Manifest, open_manifest, write_manifest

_FIELDS = {"source": str, "started_us": int, "schema": str, "manifest": str, "table_id": str, "reading": dict}


@dataclass(frozen=True, slots=True)
class Record:
    """When a job began, in µs since the Unix epoch; the table's id and `schemaString`, and the files, as of then.

    `manifest` is the key of the object with the files, `reading` how they are read (`SourceOptions.rows_depend_on`).
    """

    source: str
    started_us: int
    schema: str
    manifest: str
    table_id: str
    reading: dict[str, object]

    def to_json(self) -> bytes:
        """Return the record as it is kept."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: bytes, key: str) -> Record:
        """Read a record; raise `Corrupt`, naming its key."""
        try:
            body = orjson.loads(data)
            return cls(**{name: kind(body[name]) for name, kind in _FIELDS.items()})
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{key} is not a record of a backfill job: {error}") from error


def obtain(
    store: Store,
    clock: Clock,
    root: str,
    job_id: str,
    *,
    source: str,
    schema: str,
    table_id: str,
    reading: SourceOptions,
    list_files: Callable[[], Iterable[pa.RecordBatch]],
) -> tuple[Record, Manifest]:
    """Return the record of a job for the table at `root` and its files, writing both if this is the job's first run.

    Of two first runs at once, one writes it and both go by it. Raises `Invalid` if the job has another source
    or was another table's, `CommitUnknown` where the store stopped answering while it was written: a later run finds
    out.
    """
    key = f"{root}_alluvia/backfill/{job_id}.json"
    record, manifest = _read(store, key), None
    if record is None:
        started_us = clock.now_us()
        manifest = write_manifest(store, f"{root}_alluvia/backfill/{job_id}/{clock.new_id()}.parquet", list_files())
        ours = Record(source, started_us, schema, manifest.key, table_id, reading.rows_depend_on)
        theirs = put_once(
            store,
            clock,
            key,
            ours.to_json(),
            what=f"the record of job {job_id}",
            read=lambda: _read(store, key),
            is_ours=lambda stored: stored == ours,
        )
        record = theirs or ours
    _check_same(record, job_id, source, reading, table_id)
    if manifest is None or manifest.key != record.manifest:
        manifest = open_manifest(store, record.manifest)
    return record, manifest


def take_over(store: Store, clock: Clock, root: str, job_id: str, earlier: Record) -> Record:
    """Give a job the record of an earlier one. Raises `Invalid` where it has one of its own that differs."""
    key = f"{root}_alluvia/backfill/{job_id}.json"
    theirs = put_once(
        store,
        clock,
        key,
        earlier.to_json(),
        what=f"the record of job {job_id}",
        read=lambda: _read(store, key),
        is_ours=lambda stored: stored == earlier,
    )
    if theirs is not None and theirs != earlier:
        raise Invalid(f"job_id {job_id!r} belongs to another job: choose a different job id for the repair")
    return earlier


def known_job(
    store: Store, root: str, job_id: str, *, source: str, reading: SourceOptions, table_id: str
) -> tuple[Record, Manifest]:
    """Return the record of a job that has begun, and its files. Raises `Invalid` where there is none, or another."""
    record = _read(store, f"{root}_alluvia/backfill/{check_job_id(job_id)}.json")
    if record is None:
        raise Invalid(f"this table has no backfill with job_id {job_id!r}: give the job_id of the original run")
    _check_same(record, job_id, source, reading, table_id)
    return record, open_manifest(store, record.manifest)


def _check_same(record: Record, job_id: str, source: str, reading: SourceOptions, table_id: str) -> None:
    if record.source != source:
        msg = f"job_id {job_id!r} belongs to the source {record.source!r}: give this source a job id of its own"
        raise Invalid(msg)
    if record.reading != reading.rows_depend_on:
        raise Invalid(f"job_id {job_id!r} began with other options ({record.reading}): choose another job id")
    if record.table_id != table_id:
        raise Invalid(f"job_id {job_id!r} belongs to a table of that name that is gone: choose another job id")


def _read(store: Store, key: str) -> Record | None:
    try:
        return Record.from_json(store.get(key), key)
    except ObjectNotFound:
        return None
