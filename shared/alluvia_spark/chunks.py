"""Rows on their way through a shuffle: an Arrow batch, as bytes that Spark need not understand. Pure.

So a row is never a Python object nor one of Spark's, and every Arrow type passes unchanged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.table.partitioning.partition import PartitionRows, grouped
from alluvia.table.partitioning.spans import cut
from alluvia.table.partitioning.spec import PartitionSpec

EVENT_ID = "event_id"
SOURCE = "source"
# Names that no column of a table can have: Delta allows no `=` in them.
ROW = "row="
CONTENT = "content="
GROUPS_MAX = 2000
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4")


class Chunk(NamedTuple):
    """Rows of one table from one task, by partition value: those of `groups`, in their order.

    For one partition value, the order of (task, part) is the input's. `size` is in bytes of Arrow, `packed` in bytes
    of Parquet, as a sample has it.
    """

    table: int
    task: int
    part: int
    groups: tuple[PartitionRows, ...]
    size: int
    packed: int
    payload: bytes

    @property
    def rows(self) -> int:
        """Return how many rows it has."""
        return sum(group.rows for group in self.groups)


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


def by_partition(rows: pa.Table, spec: PartitionSpec) -> tuple[tuple[PartitionRows, ...], pa.Table]:
    """Return rows sorted by partition value, with those values in the same order; all columns are kept."""
    groups, order = grouped(rows, spec)
    return _few(groups), rows if order is None else rows.take(order)


def _few(groups: Sequence[PartitionRows]) -> tuple[PartitionRows, ...]:
    """Return groups of which neighbours are put together, under the lowest key, where they are very many."""
    found = []
    for _, members in groupby(groups, lambda group: group.values):
        same = list(members)
        least = sum(group.rows for group in groups) // GROUPS_MAX if len(groups) > GROUPS_MAX else 0
        for positions in cut([group.rows for group in same], least):
            together = same[positions.start : positions.stop]
            found.append(replace(together[0], rows=sum(group.rows for group in together)))
    return tuple(found)


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
