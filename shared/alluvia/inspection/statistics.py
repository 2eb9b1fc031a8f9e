"""Statistics of files as values of the columns' own types: a struct for each file, with a field for each column.

They are what the log says: a minimum or maximum is one that no row is below or above, and rows that a deletion vector
deletes still count. (Some other writers cut maxima; pruning allows for that.) Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.rows import ActionRows
from alluvia.delta.schema.column_mapping import physical_path
from alluvia.delta.schema.column_path import ColumnPath, leaves
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.column_bounds import partition_array
from alluvia.delta.statistics.typed import ColumnStatistics, has_bounds, parse_texts

MIN, MAX, NULLS = "min", "max", "null_count"


def statistics_type(snapshot: Snapshot) -> pa.StructType:
    """Return the type of one file's statistics: the table's columns, each with `min`, `max` and `null_count`.

    Types without bounds, such as booleans and lists, have a `null_count` alone.
    """
    return pa.struct(
        [(field.name, _type_of(field.type, field.name in snapshot.partition_columns)) for field in snapshot.schema]
    )


def _type_of(kind: pa.DataType, partition: bool) -> pa.StructType:
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _type_of(field.type, partition=False)) for field in kind.fields])
    bounds = [(MIN, kind), (MAX, kind)] if partition or has_bounds(kind) else []
    return pa.struct([*bounds, (NULLS, pa.int64())])


def file_statistics(snapshot: Snapshot, files: Sequence[AddFile]) -> Mapping[ColumnPath, ColumnStatistics]:
    """Return what is known of each column that has no fields of its own, in each of some files."""
    rows = ActionRows(files)
    texts = pa.array([file.stats for file in files], pa.string())
    stored: dict[ColumnPath, tuple[ColumnPath, pa.DataType]] = {}
    found: dict[ColumnPath, ColumnStatistics] = {}
    for path, kind in leaves(snapshot.schema):
        if path[0] in snapshot.partition_columns:
            continue
        physical = physical_path(snapshot.schema, snapshot.physical_schema, path)
        if physical is not None:
            stored[path] = (physical, kind)
    parsed = parse_texts(texts, dict(stored.values()))
    for name in snapshot.partition_columns:
        values = partition_array(rows, snapshot.physical_name(name), snapshot.schema.field(name).type)
        nulls = pa.array(
            [
                0 if valid else count
                for valid, count in zip(values.is_valid().to_pylist(), parsed.rows.to_pylist(), strict=True)
            ],
            pa.int64(),
        )
        found[name,] = ColumnStatistics(values, values, nulls)
    return found | {path: parsed.columns[physical] for path, (physical, _) in stored.items()}


def typed_statistics(snapshot: Snapshot, files: Sequence[AddFile]) -> pa.StructArray:
    """Return each file's statistics as `statistics_type` has them; null is unknown."""
    kind = statistics_type(snapshot)
    return _assembled(kind, file_statistics(snapshot, files), (), len(files))


def _assembled(
    kind: pa.StructType, found: Mapping[ColumnPath, ColumnStatistics], path: ColumnPath, count: int
) -> pa.StructArray:
    if path in found:
        one = found[path]
        values: Mapping[str, Any] = {MIN: one.low, MAX: one.high, NULLS: one.nulls}
        parts = [values[field.name].cast(field.type) for field in kind]
    else:
        parts = [
            _assembled(field.type, found, (*path, field.name), count)
            if pa.types.is_struct(field.type)
            else pa.nulls(count, field.type)
            for field in kind
        ]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
