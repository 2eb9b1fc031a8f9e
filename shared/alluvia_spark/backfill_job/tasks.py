"""What reading tasks do: lines to chunks of rows and of rejects, the same ones whenever Spark runs a task again."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from alluvia.delta.data_files.writer import sampled_share
from alluvia.delta.odd_times import KINDS
from alluvia.delta.partitioning.partition import PartitionRows
from alluvia.errors import Corrupt, Invalid, ObjectNotFound, Unsupported
from alluvia.events.ingest.event_rows import as_far_as_possible
from alluvia.events.ingest.rejects import clash_reason, reject_of
from alluvia.events.ingest.values import Fields, OddTime, Origin, Reject, counted
from alluvia.json_values.jsontext import encode as encode_json
from alluvia.store import Store
from alluvia_spark.backfill_job.job import REJECTS, ROWS, Job, Target
from alluvia_spark.backfill_job.normalise import Normalised, bad_file, file_id, normalise
from alluvia_spark.backfill_job.repeats import ids_of
from alluvia_spark.backfill_job.scratch import store_of
from alluvia_spark.chunks import (
    CONTENT,
    EVENT_ID,
    ODD,
    PLAIN,
    PRINT,
    ROW,
    SOURCE,
    Chunk,
    by_partition,
    encode,
    with_prints,
)
from alluvia_spark.sources.file_lists import folder_fields
from alluvia_spark.sources.files import BadFile
from alluvia_spark.sources.formats import read_blocks
from alluvia_spark.sources.manifest import Portion, read_splits


@contextmanager
def remembered_failure(store: Store, folder: str, attempt: int | None) -> Iterator[None]:
    """Keep an error that would come again, and raise it at once in later tries of the same attempt.

    `folder` is the job's. An attempt is a start of the job by a person, who has repaired something when the next is
    started. None is an attempt that is never repeated.
    """
    if attempt is None:
        yield
        return
    key = f"{folder}failed-{attempt}.json"
    try:
        reason = orjson.loads(store.get(key))["reason"]
    except ObjectNotFound:
        reason = None
    if reason is not None:
        raise Invalid(f"{reason} (found by an earlier try of attempt {attempt}: raise attempt to run this job again)")
    try:
        yield
    except (Invalid, Corrupt, Unsupported) as error:
        store.put(key, orjson.dumps({"reason": str(error)}))
        raise


def reject_rows(rejects: Sequence[Reject], schema: pa.Schema, arrival_us: int) -> pa.Table:
    """Return rejects as rows of the rejects table's schema."""
    columns: dict[str, Sequence[object]] = {
        "event_id": [reject.event_id for reject in rejects],
        "received_at": [arrival_us] * len(rejects),
        "reason": [reject.reason for reject in rejects],
        "position": [reject.position for reject in rejects],
        "raw": [reject.raw for reject in rejects],
        "given": [reject.given or None for reject in rejects],
    }
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


FLUSH_BYTES = 16 << 20
SAMPLE_ROWS = 1 << 14
PROBLEM = -1  # the table number of a chunk that holds no rows but, as its one value, what is wrong with the input
LINES = -2  # that of a chunk that says how many lines a task has read
ODD_TIMES = (
    -3
)  # that of one that says how many rows of a task have an odd time: its kind, field and text are the values


def read_task(job: Job, task: int, portion: Portion) -> Iterator[Chunk]:
    """Turn the lines of a task's portion into chunks of rows and of rejects.

    An input that can never be read (damaged gzip, say) ends in one problem chunk: to raise would only have Spark try
    again.
    """
    with _no_garbage_collection():
        try:
            yield from _read_portion(job, task, portion)
        except (Invalid, Corrupt, Unsupported) as error:
            yield Chunk(PROBLEM, task, 0, (PartitionRows((str(error),), (), 0),), 0, 0, b"", b"")


def _read_portion(job: Job, task: int, portion: Portion) -> Iterator[Chunk]:
    buffers = [_Buffer(number, target, task) for number, target in enumerate(job.targets)]
    lines = 0
    odd_times: list[OddTime] = []
    for _, block in _blocks(job, portion):
        lines += block.lines
        contents = b"".join(block.contents)
        hashes = pa.Array.from_buffers(pa.uint32(), len(block.rows), [None, pa.py_buffer(contents)])
        odd_times += block.odd_times.values()
        yield from buffers[ROWS].add(block.rows, {CONTENT: hashes, ODD: _kinds(block)})
        if block.rejects:
            yield from buffers[REJECTS].add(reject_rows(block.rejects, job.targets[REJECTS].schema, job.arrival_us))
    for buffer in buffers:
        yield from buffer.flush()
    yield Chunk(LINES, task, 0, (PartitionRows((), (), lines),), 0, 0, b"", b"")
    by_kind = counted(odd_times).items()
    groups = tuple(PartitionRows((kind, times.field, times.value), (), times.events) for kind, times in by_kind)
    if groups:
        yield Chunk(ODD_TIMES, task, 0, groups, 0, 0, b"", b"")


def _kinds(block: Normalised) -> pa.Array:
    """Return the kind of each row's odd time, as its number in `KINDS`; null for other rows."""
    if not block.odd_times:
        return pa.nulls(len(block.rows), pa.int8())
    numbers = {row: KINDS.index(odd.kind) for row, odd in block.odd_times.items()}
    return pa.array(map(numbers.get, range(len(block.rows))), pa.int8())


def read_clashes(job: Job, task: int, portion: Portion, wanted: Sequence[int]) -> Iterator[Chunk]:
    """Read a portion again, for the rejects of the rows at some places, which ascend; their chunks are `task`'s."""
    first = 0
    buffer, fields = _Buffer(REJECTS, job.targets[REJECTS], task), Fields.of(job.targets[ROWS].form)
    with _no_garbage_collection():
        for name, block in _blocks(job, portion):
            end = first + len(block.rows)
            here = [place - first for place in wanted[bisect_left(wanted, first) : bisect_left(wanted, end)]]
            first = end
            if not here:
                continue
            names = [name for name in (EVENT_ID, SOURCE) if name in block.rows.column_names]
            rows = block.rows.select(names).take(pa.array(here, pa.int64())).to_pylist()
            rejects = [
                reject_of(block.event(at), clash_reason(row), Origin(job.arrival_us, file_id(name)), fields)
                for at, row in zip(here, rows, strict=True)
            ]
            yield from buffer.add(reject_rows(rejects, job.targets[REJECTS].schema, job.arrival_us))
        yield from buffer.flush()


def _blocks(job: Job, portion: Portion) -> Iterator[tuple[str, Normalised]]:
    """Yield the events of a portion, block by block, with the URI of their file."""
    target = job.targets[ROWS]
    convert = partial(
        normalise,
        schema=target.schema,
        arrival_us=job.arrival_us,
        limits=job.limits,
        fields=Fields.of(target.form),
        refusals=target.refusals(),
    )
    for split in read_splits(store_of(job, job.lake_uri), job.manifest, portion):
        store, key = store_of(job, split.file.root), file_id(split.file.name)
        folders = folder_fields(split.file.key, target.schema) if job.reading.hive else {}
        limit = job.limits.body_bytes
        try:
            for block in read_blocks(store, split, line_limit_bytes=limit, kind=job.reading.format):
                yield split.file.name, convert(block, key=key, folders=folders)
        except BadFile as error:
            if job.reading.on_bad_file == "fail":
                raise Invalid(
                    f"{error}: repair the source and start a job with another job_id, or set on_bad_file to reject"
                ) from error
            yield split.file.name, bad_file(error, target.schema, key)


class Line(NamedTuple):
    """A line of the source: `position` is a reject's place in its file. `event_id` is None of what has none."""

    file: str
    position: int
    event_id: str | None
    raw: bytes


def lines_at(job: Job, portion: Portion, rows: Collection[int], rejects: Collection[int]) -> Iterator[Line]:
    """Read a portion again, for the lines that are its rows and its rejects at some places, in the source's order."""
    row = reject = 0
    for name, block in _blocks(job, portion):
        here = []
        for at in range(row, row + len(block.rows)) if rows else ():
            if at in rows:
                event = block.event(at - row)
                raw = encode_json(event.value) if event.raw is None else event.raw
                here.append(Line(name, event.position, block.rows[EVENT_ID][at - row].as_py(), raw))
        for at, each in enumerate(block.rejects, reject):
            if at in rejects:
                here.append(Line(name, each.position, each.event_id, each.raw))
        yield from sorted(here, key=lambda line: line.position)
        row, reject = row + len(block.rows), reject + len(block.rejects)


def reject_events(job: Job, task: int, portion: Portion, places: Collection[int]) -> Iterator[pa.Table]:
    """Read a portion again, for the identities that its rejects at some places have as events.

    A reject's line has the identity of its reject, which no event has.
    """
    target, reject = job.targets[ROWS], 0
    names = [name for name in (EVENT_ID, SOURCE) if name in target.schema.names]
    schema = pa.schema([target.schema.field(name) for name in names])
    for _, block in _blocks(job, portion):
        wanted = {each.position: at for at, each in enumerate(block.rejects, reject) if at in places}
        broken = [each.event_id for each in block.rejects]
        reject, first = reject + len(block.rejects), reject
        events = {event.position: event for event in block.read if event.position in wanted} if wanted else {}
        if events:
            rows = as_far_as_possible(list(events.values()), schema, Fields.of(target.form))
            yield _identities(task, rows, [wanted[position] for position in events])
        if others := [at for position, at in wanted.items() if position not in events]:
            rows = pa.table({EVENT_ID: pa.array([broken[at - first] for at in others], pa.string())})
            yield _identities(task, rows, others)


def _identities(task: int, rows: pa.Table, places: Sequence[int]) -> pa.Table:
    return ids_of(task, with_prints(rows).append_column(ROW, pa.array(places, pa.int32())))


class _Buffer:
    """Rows of one table that wait until there are enough of them to be worth a chunk."""

    def __init__(self, number: int, target: Target, task: int) -> None:
        self._number = number
        self._target = target
        self._task = task
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._rows = 0
        self._parts = 0
        self._share: float | None = None

    def add(self, table: pa.Table, more: Mapping[str, pa.Array] = MappingProxyType({})) -> Iterator[Chunk]:
        ones = pa.repeat(pa.scalar(1, pa.int32()), len(table))
        places = pc.add(pc.cumulative_sum(ones), pa.scalar(self._rows - 1, pa.int32()))
        self._rows += len(table)
        table = with_prints(table)
        for name, column in {ROW: places, **more}.items():
            table = table.append_column(name, column)
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= FLUSH_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Chunk]:
        if self._tables:
            groups, rows = by_partition(pa.concat_tables(self._tables).combine_chunks(), self._target.spec)
            stored = rows.select(self._target.schema.names)
            if self._share is None and len(rows):
                self._share = sampled_share(stored, self._target.settings, SAMPLE_ROWS)
            packed = int(stored.nbytes * (self._share or 0))
            ids = encode(ids_of(self._task, rows), PLAIN)
            kept = encode(rows.drop_columns([name for name in PRINT if name in rows.column_names]))
            yield Chunk(self._number, self._task, self._parts, groups, stored.nbytes, packed, ids, kept)
            self._parts += 1
        self._tables, self._bytes = [], 0


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Parsed events form no cycles, and there are millions of them for the collector to look through in vain."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
