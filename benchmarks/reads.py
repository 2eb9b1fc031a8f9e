"""How many bytes queries read of a table: those of the row groups that may match, in the files that pruning leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

from alluvia.api.lake import Table
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.skipping.predicate import And, Comparison, Predicate


def bytes_read(table: Table, queries: Iterable[Predicate]) -> list[int]:
    """Return for each query the bytes that it reads of a table in a directory."""
    snapshot = table.snapshot()
    return [
        sum(
            _matching_bytes(path, query)
            for file in Scan(snapshot, query).files
            if (path := table.lake.store.local_path(snapshot.key(file)))
        )
        for query in queries
    ]


def _matching_bytes(path: Path, predicate: Predicate) -> int:
    metadata = pq.read_metadata(path)
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    found = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = {name: group.column(at) for at, name in enumerate(names)}
        if all(_may_match(columns, each) for each in _comparisons(predicate)):
            found += sum(column.total_compressed_size for column in columns.values())
    return found


def _comparisons(predicate: Predicate) -> Iterator[Comparison]:
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from _comparisons(child)
    elif isinstance(predicate, Comparison):
        yield predicate


def _may_match(columns: dict[str, pq.ColumnChunkMetaData], each: Comparison) -> bool:
    column = columns.get(each.column[0])
    if column is None or column.statistics is None or not column.statistics.has_min_max:
        return True
    low, high = column.statistics.min, column.statistics.max
    return bool({"=": low <= each.value <= high, ">=": high >= each.value, "<": low < each.value}[each.op])
