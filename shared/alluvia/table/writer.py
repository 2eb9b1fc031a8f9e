"""Writing data files: rows in, Parquet objects and their add actions out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.clock import Clock
from alluvia.log.actions import AddFile
from alluvia.store import Store
from alluvia.table.partition import Partition, PartitionSpec, split
from alluvia.table.properties import Properties
from alluvia.table.snapshot import Snapshot
from alluvia.table.statistics import file_statistics

PARALLEL = 8


class FileWriter:
    """Writes data files for a table: one object per partition of the rows it is given, sorted, with statistics."""

    def __init__(self, store: Store, root: str, spec: PartitionSpec, settings: Properties, clock: Clock) -> None:
        self._store = store
        self._root = root
        self._spec = spec
        self._settings = settings
        self._clock = clock

    @classmethod
    def of(cls, snapshot: Snapshot, store: Store, clock: Clock) -> FileWriter:
        """Return a writer for a snapshot's table."""
        return cls(store, snapshot.root, snapshot.partition_spec, snapshot.settings, clock)

    def write(self, table: pa.Table) -> list[AddFile]:
        """Write rows of exactly the table's columns; one PUT a partition. Returns the files, not yet committed."""
        prepared = list(self._encode(table))
        if len(prepared) > 1 and self._store.parallel:
            with ThreadPoolExecutor(min(PARALLEL, len(prepared))) as pool:
                list(pool.map(lambda pair: self._store.put(self._root + pair[0].path, pair[1]), prepared))
        else:
            for add, data in prepared:
                self._store.put(self._root + add.path, data)
        return [add for add, _ in prepared]

    def _encode(self, table: pa.Table) -> Iterator[tuple[AddFile, bytes]]:
        for partition, rows in split(table, self._spec):
            ordered = sort_rows(rows, self._settings.sort_by)
            data = encode_parquet(ordered, self._settings)
            stats = file_statistics(ordered, self._settings.indexed_columns)
            yield new_file(partition, len(data), stats, self._clock), data


def new_file(partition: Partition, size: int, stats: str, clock: Clock, *, data_change: bool = True) -> AddFile:
    """Return the add of a new file of a partition, under a name that no other file has."""
    path = f"{partition.folder}part-{clock.new_id()}.parquet"
    return AddFile(path, partition.values, size, clock.now_ms(), data_change, stats, partition.tags)


def sort_rows(rows: pa.Table, sort_by: tuple[str, ...]) -> pa.Table:
    """Return rows in the table's sort order, nulls last."""
    keys = [(name, "ascending") for name in sort_by if name in rows.column_names]
    return rows.sort_by(keys) if keys else rows


def encode_parquet(rows: pa.Table, settings: Properties) -> bytes:
    """Return a Parquet file's bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression=settings.codec, row_group_size=settings.row_group_rows, store_schema=False)
    return bytes(sink.getvalue())
