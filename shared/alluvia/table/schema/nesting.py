"""How deep types may be nested: lists, maps and structs in one another. Pure.

A new column may be nested as deep as every reader takes at once. DuckDB's Parquet reader is the one that does not:
lists and maps in one another cost it twice the time for each level (1.5.5: 13 ms for 16 lists, 1.3 s for 22).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid, Unsupported

NESTING_MAX = 16
"""Levels of a column that is created or added; `array<array<long>>` has two. BigQuery nests records 15 deep."""
READ_MAX = 32
"""Levels of a column that another writer has made. Arrow hands types over up to 64 deep; a map counts twice."""


def check_new(field: pa.Field) -> None:
    """Raise `Invalid` for a column that is nested more deeply than a table's new column may be."""
    level = [field.type]
    for _ in range(NESTING_MAX + 1):
        level = [part for kind in level for part in _parts(kind)]
        if not level:
            return
    raise Invalid(too_deep(field.name))


def too_deep(column: str) -> str:
    """Return what is wrong with a new column that is nested too deeply, or with values that have no other type."""
    return f"column {column:.100} is nested more than {NESTING_MAX} levels deep: flatten it, or make it JSON text"


def check_readable(fields: Iterable[dict[str, Any]]) -> None:
    """Raise `Unsupported` for a column of a table, as its `schemaString` has it, that is nested too deeply to read."""
    for field in fields:
        if is_deeper(field, READ_MAX):
            name = str(field.get("name"))
            raise Unsupported(f"column {name:.100} is nested more than {READ_MAX} levels deep, which cannot be read")


def is_deeper(field: dict[str, Any], levels: int) -> bool:
    """Whether a field, as Delta's JSON has it, is nested more deeply. What is not a type of Delta has no parts."""
    level = [field.get("type")]
    for _ in range(levels + 1):
        level = [part for kind in level if isinstance(kind, dict) for part in _delta_parts(kind)]
        if not level:
            return False
    return True


def check_sql(fields: Iterable[pa.Field]) -> None:
    """Raise `Unsupported` for a column of more lists and maps in one another than DuckDB reads in a short time."""
    for field in fields:
        if _repeated(field.type) > NESTING_MAX:
            raise Unsupported(
                f"column {field.name:.100} has more than {NESTING_MAX} lists and maps in one another, which SQL cannot "
                "read in a short time: read the table with scan"
            )


def _repeated(kind: pa.DataType) -> int:
    below = max(map(_repeated, _parts(kind)), default=0)
    return below + (pa.types.is_list(kind) or pa.types.is_map(kind))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_dictionary(kind):
        return _parts(kind.value_type)
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(at).type for at in range(kind.num_fields)]


def _delta_parts(kind: dict[str, Any]) -> list[Any]:
    fields = kind.get("fields")
    inner = [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return [*inner, *(kind[part] for part in ("elementType", "keyType", "valueType") if part in kind)]
