"""Rows on their way through a shuffle: an Arrow batch of one group, as bytes that Spark need not understand. Pure.

So a row is never a Python object nor one of Spark's, and every Arrow type passes unchanged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.table.partitioning.partition import split as split_partitions
from alluvia.table.partitioning.spec import PartitionField, PartitionSpec
from alluvia_spark.plan import Group

EVENT_ID = "event_id"
SOURCE = "source"
# Names that no column of a table can have: Delta allows no `=` in them.
ROW = "row="
CONTENT = "content="
_KEY = "key="
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4")


class Chunk(NamedTuple):
    """Rows of one group from one task. In a group, the order of (task, part) is the input's; `size` is in bytes."""

    group: Group
    task: int
    part: int
    rows: int
    size: int
    payload: bytes


def encode(table: pa.Table) -> bytes:
    """Return a table as compressed Arrow IPC."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def decode(payload: bytes, columns: Iterable[int] | None = None) -> pa.Table:
    """Return the table of `encode`, or only the columns at some positions of it."""
    options = pa.ipc.IpcReadOptions(included_fields=None if columns is None else list(columns))
    return pa.ipc.open_stream(payload, options=options).read_all()


def by_partition(rows: pa.Table, spec: PartitionSpec) -> Iterator[tuple[str, pa.Table]]:
    """Yield each partition's folder with its rows, all columns kept."""
    for column in spec.identity_columns:
        rows = rows.append_column(_KEY + column, rows[column])
    keys = (field if field.transform else PartitionField(_KEY + field.column) for field in spec.fields)
    for partition, part in split_partitions(rows, PartitionSpec(tuple(keys))):
        yield partition.folder, part


def identities(rows: pa.Table) -> pa.ChunkedArray:
    """Return what each event is known by, as text: its id within its source. No source differs from an empty one."""
    if SOURCE not in rows.column_names or not pa.types.is_string(rows[SOURCE].type):
        return rows[EVENT_ID]
    prefix = pc.utf8_length(rows[SOURCE]).cast(pa.string())  # without it, one pair of texts could look like another
    return pc.binary_join_element_wise(pc.fill_null(prefix, ""), pc.fill_null(rows[SOURCE], ""), rows[EVENT_ID], ":")


def by_event(rows: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield (number, rows) for each of `count` parts that has rows; equal events are in one part."""
    if count == 1:
        yield 0, rows
        return
    ids = identities(rows).cast(pa.binary()).to_pylist()
    numbers = pa.array([code % count for code in map(zlib.crc32, ids)], pa.int32())
    for number in range(count):
        part = rows.filter(pc.equal(numbers, number))
        if len(part):
            yield number, part


def first_of_each(rows: pa.Table) -> pa.Table:
    """Return the rows without those whose event stands further up already."""
    ids = identities(rows).combine_chunks().dictionary_encode()
    if len(ids.dictionary) == len(rows):
        return rows
    numbered = pa.table({"id": ids.indices, "at": pa.array(range(len(rows)), pa.int64())})
    first = numbered.group_by("id", use_threads=False).aggregate([("at", "min")])
    return rows.take(first["at_min"].sort())
