"""Nested types: how deep they may be, and which fields inside them must not be null. Pure.

A new column may be nested as deep as every reader takes at once. DuckDB's Parquet reader is the one that does not:
lists and maps in one another cost it twice the time for each level (1.5.5: 13 ms for 16 lists, 1.3 s for 22).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
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
    """Yield fields in Delta's JSON with their paths, those of structs at any depth too, in no order."""
    pending: list[tuple[str, dict[str, Any]]] = [("", {"fields": list(fields)})]
    for prefix, kind in pending:  # which grows
        for field in _fields(kind):
            path = f"{prefix}{field.get('name')}"
            yield path, field
            if isinstance(inner := field.get("type"), dict):
                pending.append((f"{path}.", inner))
        pending += [(prefix, kind[part]) for part in _INNER if isinstance(kind.get(part), dict)]


def has_type(fields: Iterable[dict[str, Any]], name: str) -> bool:
    """Whether fields in Delta's JSON hold a primitive type at any depth."""
    level: list[Any] = [{"fields": list(fields)}]
    while level:
        if name in level:
            return True
        level = [part for kind in level if isinstance(kind, dict) for part in _delta_parts(kind)]
    return False


def is_deeper(field: dict[str, Any], levels: int) -> bool:
    """Whether a field in Delta's JSON is nested more deeply. Unknown types have no parts."""
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


def has_required(kind: pa.DataType) -> bool:
    """Whether a type has a field, at any depth, that must not be null where what holds it is there."""
    return pa.types.is_nested(kind) and any(not f.nullable or has_required(f.type) for f in _inner(kind))


def check_required(column: pa.ChunkedArray, kind: pa.DataType, path: str) -> None:
    """Raise `Invalid`, naming the field, for a null where a column's type has none.

    The column's own type may be another, as long as its fields have the same names. A null struct, list or map has no
    fields, so it lacks none.
    """
    if has_required(kind):
        for chunk in column.chunks:
            _check(chunk, kind, path)


def _check(array: pa.Array, kind: pa.DataType, path: str) -> None:
    if not has_required(kind) or not pa.types.is_nested(array.type):
        return
    present = array.drop_null()
    for field in _inner(kind):
        values, where = _values(present, kind, field.name), f"{path}.{field.name}"
        nulls = values.null_count
        if nulls and not field.nullable:
            raise Invalid(f"column {where} must not be null, but {nulls} of its {len(values)} values are")
        _check(values, field.type, where)


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return [kind.field(at) for at in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.item_field.with_name("value")]
    return [kind.value_field.with_name("element")] if pa.types.is_list(kind) else []


def _values(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Return the values of a field; nulls where a struct lacks it."""
    if pa.types.is_struct(kind):
        if isinstance(array, pa.StructArray) and array.type.get_field_index(name) >= 0:
            return array.field(name)
        return pa.nulls(len(array))
    if isinstance(array, pa.MapArray):
        pairs = pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))
        return pc.struct_field(array.cast(pairs).flatten(), "value")
    return pc.list_flatten(array)


def with_children(array: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return a list or map of another type, with other values between the same offsets."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], array.null_count, array.offset, children=[values]
    )
