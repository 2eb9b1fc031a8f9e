"""Which columns of a Parquet file are worth a dictionary. Pure.

A dictionary of values that hardly repeat, such as ids, is written first and given up once it is full: that takes twice
the time, and more bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

DISTINCT_SHARE_MAX = 0.3


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns that get a dictionary, from the rows of a row group.

    Columns within lists and maps get one, whatever they hold.
    """
    return [path for field in rows.schema for path in _paths(field.name, rows[field.name])]


def _paths(path: str, column: pa.ChunkedArray) -> Iterator[str]:
    kind = column.type
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _paths(f"{path}.{kind.field(at).name}", pc.struct_field(column, [at]))
    elif pa.types.is_nested(kind):
        yield from _below(path, kind)
    elif pc.count_distinct(column, mode="only_valid").as_py() <= DISTINCT_SHARE_MAX * len(column):
        yield path


def _below(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _below(f"{path}.{kind.field(at).name}", kind.field(at).type)
    elif pa.types.is_map(kind):
        yield from _below(f"{path}.key_value.key", kind.key_type)
        yield from _below(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _below(f"{path}.list.element", kind.value_type)
    else:
        yield path
