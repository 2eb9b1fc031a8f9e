"""The row groups of a version's data files, from their footers: one or two GETs a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.footer import TAIL_GUESS_BYTES, footer_bytes, footer_statistics, stored_columns
from alluvia.delta.statistics.vetting import vetted_footers
from alluvia.errors import Corrupt, Invalid, ObjectNotFound
from alluvia.inspection.asking import Asked
from alluvia.inspection.columns import statistics_type, typed_statistics

FILES_MAX = 1000
"""Footers of more files are not read: each takes a request."""
AT_ONCE = 64
_COLUMNS_MAX = 10_000
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("row_group", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("compressed_bytes", pa.int64()),
    ]
)


def schema_of(snapshot: Snapshot) -> pa.Schema:
    """Return the columns of `row_groups('t')`. The statistics are left out of a table without columns."""
    kind = statistics_type(snapshot)
    return _SCHEMA.append(pa.field("statistics", kind)) if kind.num_fields else _SCHEMA


def row_groups(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each row group of each file; `bytes` are those of its columns, before compression and after.

    Raises `Invalid` for more than `FILES_MAX` files, and `Corrupt`, naming a file without a readable footer.
    """
    snapshot, files = asked.snapshot, _files(asked)
    schema = schema_of(snapshot)
    for start in range(0, len(files), AT_ONCE):
        asked.check_time()
        part = files[start : start + AT_ONCE]
        footers = list(asked.catalog.store.map(lambda file: _footer(asked, file), part))
        for file, footer in zip(part, vetted_footers(footers), strict=True):
            if isinstance(footer, Invalid):
                raise _corrupt(file, footer)
            yield _rows(snapshot, file, footer, schema)


def sizes(asked: Asked) -> list[int]:
    """Return about how many bytes are read of each file. Raises `Invalid` for too many files."""
    return [min(file.size, TAIL_GUESS_BYTES) for file in _files(asked)]


def _files(asked: Asked) -> list[AddFile]:
    snapshot = asked.snapshot
    files = Scan(snapshot, asked.where).files
    if len(files) > FILES_MAX:
        raise Invalid(
            f"row_groups() reads the footer of each file, of at most {FILES_MAX}, and {snapshot.name} has {len(files)} "
            f"that match: give a condition, as in row_groups('{snapshot.name.replace('/', '.')}', 'ts >= …')"
        )
    return files


def _footer(asked: Asked, file: AddFile) -> bytes:
    store, key = asked.catalog.store, asked.snapshot.key(file)
    try:
        return footer_bytes(lambda start, end: store.get(key, start, end), file.size)
    except ObjectNotFound as error:
        raise Corrupt(f"data file {file.path} of version {asked.snapshot.version} is missing") from error
    except Invalid as error:
        raise _corrupt(file, error) from error


def _corrupt(file: AddFile, why: Invalid) -> Corrupt:
    return Corrupt(f"data file {file.path}: {why}")


def _rows(snapshot: Snapshot, file: AddFile, footer: pq.FileMetaData, schema: pa.Schema) -> pa.RecordBatch:
    numbers = range(footer.num_row_groups)
    groups = [footer.row_group(at) for at in numbers]
    columns: list[pa.Array] = [
        pa.repeat(pa.scalar(file.path), len(groups)),
        pa.array(numbers, pa.int64()),
        pa.array([group.num_rows for group in groups], pa.int64()),
        pa.array([sum(column.total_uncompressed_size for column in _columns(group)) for group in groups], pa.int64()),
        pa.array([sum(column.total_compressed_size for column in _columns(group)) for group in groups], pa.int64()),
    ]
    if len(schema) > len(columns):
        columns.append(typed_statistics(snapshot, _as_files(file, footer, numbers)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _columns(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    return [group.column(at) for at in range(group.num_columns)]


def _as_files(file: AddFile, footer: pq.FileMetaData, numbers: Sequence[int]) -> list[AddFile]:
    """Return the row groups as files of their own, with the statistics that the footer has of each."""
    try:
        stored = stored_columns(footer)
    except Invalid:  # a column of a type that Delta does not have: the others are not told apart either
        return [AddFile(file.path, file.partition_values, 0, 0, data_change=False) for _ in numbers]
    return [
        AddFile(
            file.path,
            file.partition_values,
            0,
            0,
            data_change=False,
            stats=footer_statistics(footer, stored, _COLUMNS_MAX, row_groups=[at]),
        )
        for at in numbers
    ]
