"""Rows on their way through a shuffle: an Arrow batch, as bytes that Spark need not understand. Pure.

So a row is never a Python object nor one of Spark's, and every Arrow type passes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from alluvia.commit.event_window.id_runs import FINGERPRINT_BYTES, HEAD_BYTES
from alluvia.commit.event_window.window import fingerprints
from alluvia.delta.partitioning.partition import PartitionRows, grouped
from alluvia.delta.partitioning.spec import PartitionSpec
from alluvia.delta.partitioning.transforms import Key, cut

EVENT_ID = "event_id"
SOURCE = "source"
# Names that no column of a table can have: Delta allows no `=` in them.
ROW = "row="
HEAD = "head="
TAIL = "tail="
CONTENT = "content="
ODD = "odd="
"""Of rows of events: the kind of an odd time, by its number in `odd_times.KINDS`."""
PRINT = (HEAD, TAIL, CONTENT)
GROUPS_MAX = 2000
PLAIN = pa.ipc.IpcWriteOptions()
"""For fingerprints, which no compression makes smaller."""
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4")


class Chunk(NamedTuple):
    """Rows of one table from one task, by partition value: those of `groups`, in their order.

    For one partition value, the order of (task, part) is the input's. `size` is in bytes of Arrow, `packed` in bytes
    of Parquet, as a sample has it. `ids` are the events' identities, apart from the rows since they travel alone.
    """

    table: int
    task: int
    part: int
    groups: tuple[PartitionRows, ...]
    size: int
    packed: int
    ids: bytes
    payload: bytes

    @property
    def rows(self) -> int:
        """Return how many rows it has."""
        return sum(group.rows for group in self.groups)

    def to_row(self) -> tuple[Any, ...]:
        """Return it as a row of `CHUNK`."""
        groups = orjson.dumps([[group.values, group.key, group.rows] for group in self.groups])
        return self.table, self.task, self.part, groups, self.size, self.packed, self.ids, self.payload

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Chunk:
        """Return what `to_row` made a row of."""
        table, task, part, groups, size, packed, ids, payload = row
        partitions = (PartitionRows(tuple(values), read_key(key), rows) for values, key, rows in orjson.loads(groups))
        return cls(table, task, part, tuple(partitions), size, packed, ids, payload)


CHUNK = {
    "table": "int", "task": "int", "part": "int", "groups": "binary", "size": "long", "packed": "long",
    "ids": "binary", "payload": "binary",
}  # fmt: skip


def read_key(key: Iterable[Sequence[Any]]) -> Key:
    """Return a key of JSON."""
    return tuple((null, value) for null, value in key)


def encode(table: pa.Table, options: pa.ipc.IpcWriteOptions = _WRITE) -> bytes:
    """Return a table as Arrow IPC, compressed by default."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def decode(payload: bytes) -> pa.Table:
    """Return the table of `encode`."""
    return pa.ipc.open_stream(payload).read_all()


def by_partition(rows: pa.Table, spec: PartitionSpec) -> tuple[tuple[PartitionRows, ...], pa.Table]:
    """Return rows sorted by partition value, with those values in the same order; all columns are kept."""
    groups, order = grouped(rows, spec)
    return _few(groups), rows if order is None else rows.take(order)


def _few(groups: Sequence[PartitionRows]) -> tuple[PartitionRows, ...]:
    """Return groups of which neighbours are put together, under the lowest key, where they are very many."""
    merged = []
    for _, members in groupby(groups, lambda group: group.values):
        same = list(members)
        least = sum(group.rows for group in groups) // GROUPS_MAX if len(groups) > GROUPS_MAX else 0
        for positions in cut([group.rows for group in same], least):
            together = same[positions.start : positions.stop]
            merged.append(replace(together[0], rows=sum(group.rows for group in together)))
    return tuple(merged)


def with_prints(rows: pa.Table) -> pa.Table:
    """Return events with the fingerprint of each one's id within its source, as ingestion has it: `HEAD` and `TAIL`."""
    sources = rows[SOURCE] if SOURCE in rows.column_names and pa.types.is_string(rows[SOURCE].type) else None
    names = None if sources is None or sources.null_count == len(sources) else sources.to_pylist()
    joined = b"".join(fingerprints(rows[EVENT_ID].to_pylist(), names))
    prints = pa.Array.from_buffers(pa.binary(FINGERPRINT_BYTES), len(rows), [None, pa.py_buffer(joined)])
    heads = pc.binary_slice(prints, 0, HEAD_BYTES).view(pa.uint64())
    tails = pc.binary_slice(prints, HEAD_BYTES, FINGERPRINT_BYTES).view(pa.uint32())
    return rows.append_column(HEAD, heads).append_column(TAIL, tails)
