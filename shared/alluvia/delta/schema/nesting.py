"""How deep types may be nested: lists, maps and structs in one another. Pure.

A new column may be nested as deep as every reader takes at once. DuckDB's Parquet reader is the one that does not:
lists and maps in one another cost it twice the time for each level (1.5.5: 13 ms for 16 lists, 1.3 s for 22).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid

NESTING_MAX = 16
"""Levels of a column that is created or added; `array<array<long>>` has two. BigQuery nests records 15 deep."""
READ_MAX = 32
"""Levels of a column that another writer has made. Arrow hands types over up to 64 deep; a map counts twice."""
SQL_MAX = 20
"""Lists and maps in one another that DuckDB is given to read, which takes it 0.3 seconds at most."""
NOT_FOR_SQL = (
    f"has more than {SQL_MAX} lists and maps in one another, which SQL cannot read in a short time: "
    "read it with scan, or name the other columns"
)
_INNER = ("elementType", "keyType", "valueType")


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


def not_readable(fields: Iterable[dict[str, Any]]) -> str | None:
    """Return why rows of a table cannot be read: a column, as its `schemaString` has it, is nested too deeply."""
    for field in fields:
        if is_deeper(field, READ_MAX):
            name = str(field.get("name"))
            return f"column {name:.100} is nested more than {READ_MAX} levels deep, which cannot be read: drop it"
    return None


def without_depth(fields: list[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Return fields, of which some that are nested too deeply to read hold bytes: so their columns can be dropped."""
    wanted = {fold(name) for name in names}
    return [
        {**field, "type": "binary"} if fold(str(field.get("name"))) in wanted and is_deeper(field, READ_MAX) else field
        for field in fields
    ]


def all_fields(fields: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield fields, as Delta's JSON has them, with their paths; those of structs at any depth too, not in order."""
    pending: list[tuple[str, dict[str, Any]]] = [("", {"fields": list(fields)})]
    for prefix, kind in pending:  # which grows
        for field in _fields(kind):
            path = f"{prefix}{field.get('name')}"
            yield path, field
            if isinstance(inner := field.get("type"), dict):
                pending.append((f"{path}.", inner))
        pending += [(prefix, kind[part]) for part in _INNER if isinstance(kind.get(part), dict)]


def has_type(fields: Iterable[dict[str, Any]], name: str) -> bool:
    """Whether fields, as Delta's JSON has them, hold a primitive type at any depth."""
    level: list[Any] = [{"fields": list(fields)}]
    while level:
        if name in level:
            return True
        level = [part for kind in level if isinstance(kind, dict) for part in _delta_parts(kind)]
    return False


def is_deeper(field: dict[str, Any], levels: int) -> bool:
    """Whether a field, as Delta's JSON has it, is nested more deeply. What is not a type of Delta has no parts."""
    level = [field.get("type")]
    for _ in range(levels + 1):
        level = [part for kind in level if isinstance(kind, dict) for part in _delta_parts(kind)]
        if not level:
            return False
    return True


def not_for_sql(field: pa.Field) -> str | None:
    """Return why DuckDB is not to read a column: more lists and maps in one another than it reads in a short time."""
    return f"column {field.name:.100} {NOT_FOR_SQL}" if _repeated(field.type) > SQL_MAX else None


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
    return [*(field.get("type") for field in _fields(kind)), *(kind[part] for part in _INNER if part in kind)]


def _fields(kind: dict[str, Any]) -> list[dict[str, Any]]:
    fields = kind.get("fields")
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
