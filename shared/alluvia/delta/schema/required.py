"""Fields inside structs, lists and maps that must not be null. Pure. Source: Delta protocol, "Schema Serialization"."""

from __future__ import annotations

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.errors import Invalid


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
    """Return the values of a field in values that are there; nulls where a struct lacks it."""
    if pa.types.is_struct(kind):
        if isinstance(array, pa.StructArray) and array.type.get_field_index(name) >= 0:
            return array.field(name)
        return pa.nulls(len(array))
    if isinstance(array, pa.MapArray):
        pairs = pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))
        return pc.struct_field(array.cast(pairs).flatten(), "value")
    return pc.list_flatten(array)
