"""Write data files: rows in, Parquet objects and their add actions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.log.actions import AddFile
from alluvia.log.paths import folder_of
from alluvia.store import Store
from alluvia.table.partitioning.partition import Partition, PartitionSpec, split
from alluvia.table.partitioning.spans import PARTITION_TAG
from alluvia.table.properties import Properties
from alluvia.table.statistics.written import file_statistics

RowCheck = Callable[[pa.Table], None]
"""Raises `Invalid` for rows that may not be written."""


class FileWriter:
    """Writes data files for a table: one object per partition of the rows it is given, sorted, with statistics."""

    def __init__(
        self,
        store: Store,
        root: str,
        spec: PartitionSpec,
        settings: Properties,
        clock: Clock,
        check: RowCheck | None = None,
    ) -> None:
        self._store = store
        self._root = root
        self._spec = spec
        self._settings = settings
        self._clock = clock
        self._check = check

    def write(self, table: pa.Table) -> list[AddFile]:
        """Write rows of exactly the table's columns; one PUT a partition. Returns the files, not yet committed."""
        if self._check is not None:
            self._check(table)
        prepared = list(self._encode(table))
        self._store.put_many({self._root + add.path: data for add, data in prepared})
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


def new_file_like(like: AddFile, size: int, stats: str, clock: Clock, *, data_change: bool = True) -> AddFile:
    """Return the add of a new file with rows of another one: of its partition, and in its folder.

    Of its tags the new file has the partition's: others are about the other's own rows.
    """
    path = f"{folder_of(like.path)}part-{clock.new_id()}.parquet"
    tags = {name: text for name, text in like.tags.items() if name == PARTITION_TAG}
    return AddFile(path, like.partition_values, size, clock.now_ms(), data_change, stats, tags)


def sort_rows(rows: pa.Table, sort_by: tuple[str, ...]) -> pa.Table:
    """Return rows in the table's sort order, nulls last."""
    keys = [(name, "ascending") for name in sort_by if name in rows.column_names]
    return rows.sort_by(keys) if keys else rows


def bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the Parquet paths of the columns for which a file may hold bounds: all but floating-point ones and lists.

    Arrow's bounds leave NaN out. DuckDB, which sorts NaN above every number, treats them as bounds of all values, and
    would miss it.
    """
    found: list[str] = []

    def visit(path: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for at in range(kind.num_fields):
                visit(f"{path}.{kind.field(at).name}", kind.field(at).type)
        elif not pa.types.is_nested(kind) and not pa.types.is_floating(kind):
            found.append(path)

    for field in schema:
        visit(field.name, field.type)
    return found


def encode_parquet(rows: pa.Table, settings: Properties) -> bytes:
    """Return a Parquet file's bytes. Raises `Invalid`, naming the field, for a null where the schema has none."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(
            rows,
            sink,
            compression=settings.codec,
            row_group_size=settings.row_group_rows,
            store_schema=False,
            write_page_checksum=True,
            write_statistics=bounded_columns(rows.schema) or False,
        )
    except pa.ArrowInvalid as error:  # a null in a field of a struct that allows none
        msg = f"the rows do not fit the table: {error}"
        raise Invalid(msg) from error
    return bytes(sink.getvalue())
