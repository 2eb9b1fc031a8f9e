"""Which types of a file's columns DuckDB may convert to a table's, since no value changes its meaning by that. Pure."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

_INTEGERS = frozenset(
    {
        *("tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
    }
)
_TIMES = frozenset({"timestamp", "timestamp with time zone", "timestamp_ns", "timestamp_ms", "timestamp_s"})
_PLAIN = {"string": "varchar", "binary": "blob", "bool": "boolean", "date32[day]": "date"}


class DuckType(Protocol):
    """A type as DuckDB's Python client has it."""

    @property
    def id(self) -> str:
        """Its kind, such as `integer` or `struct`."""

    @property
    def children(self) -> list[tuple[str, Any]]:
        """Names and types of its parts; asked for of nested types only."""


def fits(found: DuckType, kind: pa.DataType) -> bool:
    """Whether DuckDB may cast a file's column to a type of the table's physical schema."""
    types = pa.types
    if types.is_struct(kind):
        return found.id == "struct" and _struct_fits(dict(found.children), kind)
    if types.is_map(kind):
        parts = dict(found.children) if found.id == "map" else {}
        return bool(parts) and fits(parts["key"], kind.key_type) and fits(parts["value"], kind.item_type)
    if types.is_list(kind):
        return found.id == "list" and fits(dict(found.children)["child"], kind.value_type)
    if types.is_integer(kind):
        return found.id in _INTEGERS
    if types.is_floating(kind):
        return found.id == "float" or (types.is_float64(kind) and (found.id == "double" or found.id in _INTEGERS))
    if types.is_decimal(kind):
        return found.id == "decimal" or found.id in _INTEGERS
    if types.is_timestamp(kind):
        return found.id in _TIMES or (found.id == "date" and kind.tz is None)
    return found.id == _PLAIN[str(kind)]


def _struct_fits(children: dict[str, DuckType], kind: pa.DataType) -> bool:
    """Whether a struct has one of the fields at least (DuckDB asks for that), and none of another type."""
    known = {name.lower(): child for name, child in children.items()}
    present = [field for field in kind.fields if field.name.lower() in known]
    return bool(present) and all(fits(known[field.name.lower()], field.type) for field in present)
