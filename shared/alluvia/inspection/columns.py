"""The columns of a version, with what the statistics of its files say of them together.

They are what the log says: a minimum or maximum is one that no row is below or above, and rows that a deletion vector
deletes still count. (Some other writers cut maxima; pruning allows for that.) Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.action_rows import ActionRows
from alluvia.delta.schema.column_mapping import physical_path
from alluvia.delta.schema.comments import comment_of
from alluvia.delta.schema.names import ColumnPath, leaves
from alluvia.delta.schema.serialization import schema_fields
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.column_bounds import partition_array
from alluvia.delta.statistics.typed import ColumnStatistics, has_bounds, parse_texts
from alluvia.inspection.asking import Asked, batches_of
from alluvia.operations.catalog.catalog import Catalog, shows_comments

SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("name", pa.string()),
        ("type", pa.string()),
        ("nullable", pa.bool_()),
        ("partition", pa.bool_()),
        ("min", pa.string()),
        ("max", pa.string()),
        ("null_count", pa.int64()),
        ("default", pa.string()),
        ("comment", pa.string()),
    ]
)
_DEFAULT = "CURRENT_DEFAULT"


def columns(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each column that the caller may see.

    `min`, `max` and `null_count` are null unless all files say them, for columns of structs, and for a caller that may
    not see all rows, of which they tell.
    """
    snapshot, rights = asked.snapshot, asked.catalog.rights
    shown = frozenset(asked.seen(snapshot).names)
    statistics = rights is None or not rights.restriction(snapshot.name).where
    by_path: Mapping[tuple[str, ...], ColumnStatistics] = {}
    counts: list[int | None] = []
    if statistics and asked.names("min", "max", "null_count"):
        files = list(snapshot.files)
        asked.check_time()
        by_path, counts = file_statistics(snapshot, files), [file.num_records for file in files]
    notes = notes_of(snapshot, asked.catalog)
    rows = []
    for position, field in enumerate(snapshot.schema, 1):
        if field.name not in shown:
            continue
        default, comment = notes.get(field.name, (None, None))
        low, high, nulls = together(by_path.get((field.name,)), counts)
        rows.append(
            {
                "position": position,
                "name": field.name,
                "type": type_name(field.type),
                "nullable": field.nullable,
                "partition": field.name in snapshot.partition_columns,
                "min": text_of(low),
                "max": text_of(high),
                "null_count": nulls,
                "default": default,
                "comment": comment,
            }
        )
    return batches_of(rows, SCHEMA)


def notes_of(snapshot: Snapshot, catalog: Catalog) -> dict[str, tuple[str | None, str | None]]:
    """Return the default, which only other writers give, and the comment of columns as a caller sees them, by name."""
    notes, shown = {}, shows_comments(catalog, snapshot.name)
    for field in schema_fields(snapshot.state.metadata.schema_string):
        metadata = field.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        notes[str(field.get("name"))] = _text(metadata.get(_DEFAULT)), comment_of(field) if shown else None
    return notes


def together(statistics: ColumnStatistics | None, counts: list[int | None]) -> tuple[Any, Any, int | None]:
    """Return the least and greatest value of a column in all files, and the nulls; None where one file hides them.

    `counts` are the files' numbers of rows: one whose values are all null has no bounds, and needs none.
    """
    if statistics is None or not counts:
        return None, None, 0 if statistics is not None else None
    rows = pa.array(counts, pa.int64())
    nulls = None if statistics.nulls.null_count else pc.sum(statistics.nulls).as_py()
    empty = pc.fill_null(pc.equal(statistics.nulls, rows), fill_value=False)
    bounded = pc.and_(pc.is_valid(statistics.low), pc.is_valid(statistics.high))
    if not pc.all(pc.or_(empty, bounded)).as_py() or not pc.any(bounded).as_py():
        return None, None, nulls
    return pc.min(statistics.low).as_py(), pc.max(statistics.high).as_py(), nulls


def text_of(value: Any) -> str | None:
    """Return a value as SQL would show it, a time in UTC."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bytes):
        return value.hex()
    return None if value is None else str(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


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
    statistics: dict[ColumnPath, ColumnStatistics] = {}
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
        statistics[name,] = ColumnStatistics(values, values, nulls)
    return statistics | {path: parsed.columns[physical] for path, (physical, _) in stored.items()}


def typed_statistics(snapshot: Snapshot, files: Sequence[AddFile]) -> pa.StructArray:
    """Return each file's statistics as `statistics_type` has them; null is unknown."""
    kind = statistics_type(snapshot)
    return _assembled(kind, file_statistics(snapshot, files), (), len(files))


def _assembled(
    kind: pa.StructType, statistics: Mapping[ColumnPath, ColumnStatistics], path: ColumnPath, count: int
) -> pa.StructArray:
    if path in statistics:
        one = statistics[path]
        values: Mapping[str, Any] = {MIN: one.low, MAX: one.high, NULLS: one.nulls}
        parts = [values[field.name].cast(field.type) for field in kind]
    else:
        parts = [
            _assembled(field.type, statistics, (*path, field.name), count)
            if pa.types.is_struct(field.type)
            else pa.nulls(count, field.type)
            for field in kind
        ]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
