"""Comparing what we read with what another reader wrote down, types included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.judges import Rows, canonical


def written(folder: Path) -> pa.Table:
    """Return the rows of the Parquet files of a folder."""
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file, coerce_int96_timestamp_unit="us") for file in files])


def rows(table: pa.Table) -> Rows:
    """Return rows as a multiset that can be compared; times as numbers, since Python's end in the year 9999."""
    return canonical(pa.table({field.name: _plain_times(table[field.name]) for field in table.schema}))


def _plain_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def types(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return names and types, without what Arrow adds to them: names within lists and maps, and nullability."""
    return [(field.name, _type(field.type)) for field in schema]


def _type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct({', '.join(f'{field.name} {_type(field.type)}' for field in kind.fields)})"
    if pa.types.is_map(kind):
        return f"map({_type(kind.key_type)}, {_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"list({_type(kind.value_type)})"
    return str(kind)


def folders(path: Path) -> Iterable[str]:
    """Return the names of the folders in one, in order."""
    return sorted(each.name for each in path.iterdir() if each.is_dir())


def conditions(expected: pa.Table, values_max: int = 4) -> Iterator[tuple[str, Rows]]:
    """Yield conditions on single values of every column that has an order, and the rows that meet each."""
    whole = [(dict(row), row) for row in rows(expected)]
    for field in expected.schema:
        if not _comparable(str(field.type)):
            continue
        values = {repr(value): value for value in expected[field.name].to_pylist()}
        for value in list(values.values())[:values_max]:
            name = field.name.replace('"', '""')
            where = f'"{name}" IS NOT DISTINCT FROM {_literal(value, str(field.type))}'
            found = _canonical(expected, field.name, value)
            yield where, [row for cells, row in whole if cells[field.name] == found]


def _comparable(kind: str) -> bool:
    return kind in ("int8", "int16", "int32", "int64", "string", "date32[day]") or kind.startswith(("decimal", "times"))


def _literal(value: Any, kind: str) -> str:
    if value is None:
        return "NULL"
    if kind.startswith("int"):
        return str(value)
    if kind.startswith("decimal"):
        return f"CAST('{value:f}' AS DECIMAL{kind[kind.index('(') :]})"
    sql = {"string": "VARCHAR", "date32[day]": "DATE", "timestamp[us]": "TIMESTAMP"}.get(kind, "TIMESTAMPTZ")
    text = str(value).replace("'", "''").replace("\0", "' || chr(0) || '")
    return f"CAST('{text}' AS {sql})"


def _canonical(table: pa.Table, column: str, value: Any) -> Any:
    """Return a value as `rows` has it."""
    at = table[column].to_pylist().index(value)
    return dict(rows(table.slice(at, 1))[0])[column]
