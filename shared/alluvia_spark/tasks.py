"""What runs in the executors: lines to chunks, chunks to the tasks that write them, and chunks to data files.

Every step gives the same result whenever Spark runs it again; only the names of data files differ, and those of an
attempt that failed are named by no commit, so vacuum collects them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.clock import SystemClock
from alluvia.errors import Corrupt, Invalid, Unsupported
from alluvia.ingest.values import Fields
from alluvia.store import Store
from alluvia.table.writer import FileWriter
from alluvia_spark.chunks import (
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
from alluvia_spark.normalise import file_id, normalise
from alluvia_spark.plan import Group, Share
from alluvia_spark.rejects import reject_rows
from alluvia_spark.source import FileSplit

FLUSH_BYTES = 64 << 20
PROBLEM = -1  # the table number of a chunk that holds no rows but, as its folder, what is wrong with the input
Winners = Mapping[int, Mapping[str, str]]  # by table and identity: the one folder of several that keeps the event


class IdChunk(NamedTuple):
    """The identities of a chunk's events, as their event ids, with their places in its task."""

    group: Group
    task: int
    payload: bytes


def read_task(job: Job, task: int, splits: Sequence[FileSplit]) -> Iterator[Chunk]:
    """Turn the lines of a task's splits into chunks of rows and of rejects.

    An input that can never be read (damaged gzip, say) ends in one problem chunk: to raise would only have Spark try
    again.
    """
    with _no_garbage_collection():
        try:
            yield from _read_splits(job, task, splits)
        except (Invalid, Corrupt, Unsupported) as error:
            yield Chunk(Group(PROBLEM, str(error)), task, 0, 0, 0, b"")


def _read_splits(job: Job, task: int, splits: Sequence[FileSplit]) -> Iterator[Chunk]:
    buffers = [_Buffer(number, target, task) for number, target in enumerate(job.targets)]
    schema, fields = job.targets[ROWS].schema, Fields.of(job.targets[ROWS].settings)
    for split in splits:
        store, key = _store(job, split.file.root), file_id(split.file.name)
        for block in read_blocks(store, split, line_limit_bytes=job.limits.body_bytes):
            rows, rejects = normalise(
                block, schema, arrival_us=job.arrival_us, key=key, limits=job.limits, fields=fields
            )
            yield from buffers[ROWS].add(rows)
            if rejects:
                yield from buffers[REJECTS].add(reject_rows(rejects, job.targets[REJECTS].schema, job.arrival_us))
    for buffer in buffers:
        yield from buffer.flush()


class _Buffer:
    """Rows of one table that wait until there are enough of them to be worth a chunk a partition."""

    def __init__(self, number: int, target: Target, task: int) -> None:
        self._number = number
        self._target = target
        self._task = task
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._rows = 0
        self._parts = 0

    def add(self, table: pa.Table) -> Iterator[Chunk]:
        places = pa.array(range(self._rows, self._rows + len(table)), pa.int64())
        self._rows += len(table)
        self._tables.append(table.append_column(ROW, places))
        self._bytes += table.nbytes
        if self._bytes >= FLUSH_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Chunk]:
        if self._tables:
            for folder, rows in by_partition(pa.concat_tables(self._tables).combine_chunks(), self._target.spec):
                group = Group(self._number, folder)
                yield Chunk(group, self._task, self._parts, len(rows), rows.nbytes, encode(rows))
            self._parts += 1
        self._tables, self._bytes = [], 0


def event_ids(job: Job, tables: frozenset[int], parts: int, chunk: Chunk) -> Iterator[tuple[int, IdChunk]]:
    """Yield the identities of a chunk's events, divided so that equal ones meet in one of `parts` tasks."""
    if chunk.group.table in tables:
        schema = job.targets[chunk.group.table].schema
        names = [name for name in (EVENT_ID, SOURCE) if name in schema.names]
        found = decode(chunk.payload, (*map(schema.get_field_index, names), len(schema)))
        ids = pa.table({EVENT_ID: identities(found), ROW: found[ROW]})
        for number, part in by_event(ids, parts):
            yield number, IdChunk(chunk.group, chunk.task, encode(part))


def find_winners(chunks: Iterable[IdChunk]) -> list[tuple[Group, str]]:
    """Return each identity that occurs in several partitions of a table, with the group of its first occurrence."""
    groups: dict[Group, int] = {}
    tables: dict[int, list[pa.Table]] = {}
    for chunk in chunks:
        number = groups.setdefault(chunk.group, len(groups))
        ids = decode(chunk.payload)
        whence = {"group": pa.repeat(number, len(ids)), "task": pa.repeat(chunk.task, len(ids))}
        ids = pa.table({EVENT_ID: ids[EVENT_ID], ROW: ids[ROW], **whence})
        tables.setdefault(chunk.group.table, []).append(ids)
    names = list(groups)
    return [
        (names[row["group"]], row[EVENT_ID]) for parts in tables.values() for row in _winners(pa.concat_tables(parts))
    ]


def _winners(ids: pa.Table) -> list[dict[str, Any]]:
    numbers = ids[EVENT_ID].combine_chunks().dictionary_encode()
    if len(numbers.dictionary) == len(ids):
        return []
    whence = pa.table({"id": numbers.indices, "group": ids["group"]})
    spans = whence.group_by("id", use_threads=False).aggregate([("group", "min"), ("group", "max")])
    several = spans.filter(pc.not_equal(spans["group_min"], spans["group_max"]))["id"]
    places = ids.filter(pc.is_in(numbers.indices, several.combine_chunks()))
    found: list[dict[str, Any]] = first_of_each(places.sort_by([("task", "ascending"), (ROW, "ascending")])).to_pylist()
    return found


def route(shares: Mapping[Group, Share], chunk: Chunk) -> Iterator[tuple[int, Chunk]]:
    """Yield a chunk, or the parts of one whose group has several tasks, each with the task that writes it."""
    share = shares[chunk.group]
    if share.count == 1:
        yield share.first, chunk
        return
    for number, part in by_event(decode(chunk.payload), share.count):
        yield share.first + number, chunk._replace(rows=len(part), size=part.nbytes, payload=encode(part))


def write_task(job: Job, winners: Winners, chunks: Iterable[Chunk]) -> Iterator[Written]:
    """Write a task's rows, each event once, in the order and the files that its table wants."""
    by_table: dict[int, list[Chunk]] = {}
    for chunk in chunks:
        by_table.setdefault(chunk.group.table, []).append(chunk)
    for number, ours in sorted(by_table.items()):
        target = job.targets[number]
        ours.sort(key=lambda chunk: (chunk.task, chunk.part))
        rows = pa.concat_tables(_kept(chunk, winners.get(number, {})) for chunk in ours)
        rows = first_of_each(rows.drop_columns([ROW])).combine_chunks()
        writer = FileWriter(_store(job, job.lake_uri), target.root, target.spec, target.settings, SystemClock())
        yield Written(number, len(rows), tuple(writer.write(rows)))


def _kept(chunk: Chunk, winners: Mapping[str, str]) -> pa.Table:
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
