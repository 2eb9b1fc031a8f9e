"""Types of columns: those of a Parquet file without dictionaries and views, and those of a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from alluvia.files.limits import Misfit

_UNSIGNED = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.null(): pa.string(),
}  # fmt: skip


def paths(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the fields of structs in a type, as names that begin with a path."""
    for at in range(kind.num_fields):
        inner = kind.field(at)
        below = f"{path}.{inner.name}"
        if pa.types.is_struct(kind):
            yield below
        yield from paths(inner.type, below)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries and views in it."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(plain_type(kind.field(0).type))
    return _mapped(kind, plain_type)


def delta_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type of a table's column that holds every value of a file's. Raises `Misfit` if there is none."""
    types = pa.types
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_date(kind):
        return pa.date32()
    if types.is_decimal(kind):
        if kind.precision > 38 or kind.scale < 0:
            raise Misfit(f"column {name}: {kind} has more digits than decimal(38,s): declare another type")
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_time(kind) or types.is_duration(kind) or types.is_interval(kind):
        raise Misfit(f"column {name}: a table has no type for {kind}: leave it out, or write it as another type")
    return _mapped(kind, lambda inner: delta_type(inner, name))


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type whose parts are changed."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, change(field.type)) for field in kind.fields])
    if types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_type))
    return kind
