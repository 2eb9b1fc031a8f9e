"""What runs in the executors: lines to chunks, chunks to the tasks that write them, and chunks to data files.

Every step gives the same result whenever Spark runs it again; only the names of data files differ, and those of an
attempt that failed are named by no commit, so vacuum collects them.
"""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.clock import SystemClock
from alluvia.errors import Corrupt, Invalid, Unsupported
from alluvia.ingest.rejects import clash_reason, reject_of
from alluvia.ingest.values import Fields, Origin
from alluvia.store import Store
from alluvia.table.partitioning.partition import PartitionRows
from alluvia.table.writer import FileWriter, sampled_share
from alluvia_spark.chunks import (
    CONTENT,
    EVENT_ID,
    ROW,
    SOURCE,
    Chunk,
    by_event,
    by_partition,
    decode,
    encode,
    first_of_each,
    identities,
)
from alluvia_spark.job import REJECTS, ROWS, Job, Target, Written
from alluvia_spark.lines import read_blocks
from alluvia_spark.manifest import Portion, read_splits
from alluvia_spark.normalise import Normalised, file_id, normalise
from alluvia_spark.plan import Group, Layout, Share
from alluvia_spark.rejects import reject_rows

FLUSH_BYTES = 64 << 20
SAMPLE_ROWS = 1 << 14
PROBLEM = -1  # the table number of a chunk that holds no rows but, as its one value, what is wrong with the input
Winners = Mapping[int, Mapping[str, str]]  # by table and identity: the one folder of several that keeps the event


class Rows(NamedTuple):
    """Rows of one group from one task. In a group, the order of (task, part) is the input's."""

    group: Group
    task: int
    part: int
    payload: bytes


def read_task(job: Job, task: int, portion: Portion) -> Iterator[Chunk]:
    """Turn the lines of a task's portion into chunks of rows and of rejects.

    An input that can never be read (damaged gzip, say) ends in one problem chunk: to raise would only have Spark try
    again.
    """
    with _no_garbage_collection():
        try:
            yield from _read_portion(job, task, portion)
        except (Invalid, Corrupt, Unsupported) as error:
            yield Chunk(PROBLEM, task, 0, (PartitionRows((str(error),), (), 0),), 0, 0, b"")


def _read_portion(job: Job, task: int, portion: Portion) -> Iterator[Chunk]:
    buffers = [_Buffer(number, target, task) for number, target in enumerate(job.targets)]
    for _, found in _blocks(job, portion):
        contents = b"".join(found.contents)
        hashes = pa.Array.from_buffers(pa.uint32(), len(found.rows), [None, pa.py_buffer(contents)])
        yield from buffers[ROWS].add(found.rows, {CONTENT: hashes})
        if found.rejects:
            yield from buffers[REJECTS].add(reject_rows(found.rejects, job.targets[REJECTS].schema, job.arrival_us))
    for buffer in buffers:
        yield from buffer.flush()


def read_clashes(job: Job, task: int, portion: Portion, places: Sequence[int]) -> Iterator[Chunk]:
    """Read a portion again, for the rejects of the rows at some places; their chunks count as those of `task`."""
    wanted, first = sorted(places), 0
    buffer, fields = _Buffer(REJECTS, job.targets[REJECTS], task), Fields.of(job.targets[ROWS].settings)
    with _no_garbage_collection():
        for key, found in _blocks(job, portion):
            end = first + len(found.rows)
            here = [place - first for place in wanted[bisect_left(wanted, first) : bisect_left(wanted, end)]]
            first = end
            if not here:
                continue
            names = [name for name in (EVENT_ID, SOURCE) if name in found.rows.column_names]
            rows = found.rows.select(names).take(pa.array(here, pa.int64())).to_pylist()
            rejects = [
                reject_of(found.event(at), clash_reason(row), Origin(job.arrival_us, key), fields)
                for at, row in zip(here, rows, strict=True)
            ]
            yield from buffer.add(reject_rows(rejects, job.targets[REJECTS].schema, job.arrival_us))
        yield from buffer.flush()


def _blocks(job: Job, portion: Portion) -> Iterator[tuple[str, Normalised]]:
    """Yield the events of a portion, block by block, with what identifies their file."""
    target = job.targets[ROWS]
    convert = partial(
        normalise,
        schema=target.schema,
        arrival_us=job.arrival_us,
        limits=job.limits,
        fields=Fields.of(target.settings),
        refusals=target.refusals(),
    )
    for split in read_splits(_store(job, job.lake_uri), job.manifest, portion):
        store, key = _store(job, split.file.root), file_id(split.file.name)
        for block in read_blocks(store, split, line_limit_bytes=job.limits.body_bytes):
            yield key, convert(block, key=key)


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
        places = pa.array(range(self._rows, self._rows + len(table)), pa.int64())
        self._rows += len(table)
        for name, column in {ROW: places, **more}.items():
            table = table.append_column(name, column)
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= FLUSH_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Chunk]:
        if self._tables:
            groups, rows = by_partition(pa.concat_tables(self._tables).combine_chunks(), self._target.spec)
            if self._share is None and len(rows):
                stored = rows.select(self._target.schema.names)
                self._share = sampled_share(stored, self._target.settings, SAMPLE_ROWS) * stored.nbytes / rows.nbytes
            packed = int(rows.nbytes * (self._share or 0))
            yield Chunk(self._number, self._task, self._parts, groups, rows.nbytes, packed, encode(rows))
            self._parts += 1
        self._tables, self._bytes = [], 0


def route(layouts: Mapping[int, Layout], shares: Mapping[Group, Share], chunk: Chunk) -> Iterator[tuple[int, Rows]]:
    """Yield a chunk's rows by group, in parts where the group has several tasks, with the task that writes them."""
    places = list(layouts[chunk.table].places(chunk.groups))
    if len(places) == 1 and shares[places[0][0]].count == 1:
        yield shares[places[0][0]].first, Rows(places[0][0], chunk.task, chunk.part, chunk.payload)
        return
    rows = decode(chunk.payload)
    for group, start, end in places:
        share = shares[group]
        for number, part in by_event(rows.slice(start, end - start), share.count):
            yield share.first + number, Rows(group, chunk.task, chunk.part, encode(part))


def write_task(job: Job, winners: Winners, chunks: Iterable[Rows]) -> Iterator[Written]:
    """Write a task's rows, each event once, group by group, in the order and the files that its table wants."""
    by_group: dict[Group, list[Rows]] = {}
    for chunk in chunks:
        by_group.setdefault(chunk.group, []).append(chunk)
    for group in sorted(by_group):
        target = job.targets[group.table]
        ours = sorted(by_group.pop(group), key=lambda chunk: (chunk.task, chunk.part))
        rows = pa.concat_tables(_kept(chunk, winners.get(group.table, {})) for chunk in ours)
        rows = first_of_each(rows.select(target.schema.names)).combine_chunks()
        writer = FileWriter(_store(job, job.lake_uri), target.root, target.spec, target.form, SystemClock())
        yield Written(group.table, len(rows), tuple(writer.write(rows, together=True)))


def _kept(chunk: Rows, winners: Mapping[str, str]) -> pa.Table:
    rows = decode(chunk.payload)
    elsewhere = [event_id for event_id, folder in winners.items() if folder != chunk.group.folder]
    if not elsewhere:
        return rows
    return rows.filter(pc.invert(pc.is_in(identities(rows), pa.array(elsewhere, pa.string()))))


def _store(job: Job, uri: str) -> Store:
    options = job.options if uri.startswith("s3:") else {}
    return _opened(job.stores, uri, tuple(sorted(options.items())))


@cache
def _opened(stores: Any, uri: str, options: tuple[tuple[str, str], ...]) -> Store:
    store: Store = stores(uri, SystemClock(), **dict(options))
    return store


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Parsed events form no cycles, and there are millions of them for the collector to look through in vain."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
