"""Indexes of event ids as earlier versions of this library wrote them: a row for each commit, without contents."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def old_index(commits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return the index of commits: version, time in ms and joined fingerprints of each."""
    columns = [list(column) for column in zip(*commits, strict=True)] or [[], [], []]
    kinds = [pa.int64(), pa.int64(), pa.binary()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    table = pa.table(arrays, names=["version", "timestamp_ms", "fingerprints"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
