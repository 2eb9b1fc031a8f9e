"""Which column types of a file DuckDB may convert to a table's without changing the meaning of a value. Pure."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.lazy_dataclasses import dataclass

_SIGNED = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_WIDTHS = {name: 8 << at for at, name in enumerate(_SIGNED)}
_INTEGERS = frozenset({*_SIGNED, "utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"})
_TIMES = frozenset({"timestamp", "timestamp with time zone", "timestamp_ns", "timestamp_ms", "timestamp_s"})
_NESTED = ("struct", "map", "list", "decimal")
_PLAIN = {"string": "varchar", "binary": "blob", "bool": "boolean", "date32[day]": "date"}


class DuckType(Protocol):
    """A type as DuckDB's Python client has it."""

    @property
    def id(self) -> str:
        """Its kind, such as `integer` or `struct`."""

    @property
    def children(self) -> list[tuple[str, Any]]:
        """Names and types of the parts of a nested type; precision and scale of a decimal."""


@dataclass(frozen=True, slots=True)
class ToldType:
    """A type that another process has told of, by `told`."""

    id: str
    children: list[tuple[str, Any]]


def told(kind: DuckType | int) -> Any:
    """Return a type as values that JSON has; the parts of kinds that no table has are left out."""
    if isinstance(kind, int):
        return kind
    children = kind.children if kind.id in _NESTED else []
    return [kind.id, [(name, told(child)) for name, child in children]]


def read_told(kind: Any) -> Any:
    """Return the type that `told` told of."""
    return kind if isinstance(kind, int) else ToldType(kind[0], [(name, read_told(child)) for name, child in kind[1]])


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


def _struct_fits(children: dict[str, DuckType], kind: pa.StructType) -> bool:
    """Whether a struct has one of the fields at least (DuckDB asks for that), and none of another type."""
    known = {fold(name): child for name, child in children.items()}
    present = [field for field in kind.fields if fold(field.name) in known]
    return bool(present) and all(fits(known[fold(field.name)], field.type) for field in present)


def narrows(found: DuckType, kind: pa.DataType) -> bool:
    """Whether DuckDB casts a file's whole numbers to a smaller kind of the table's."""
    return pa.types.is_integer(kind) and found.id in _INTEGERS and _WIDTHS.get(found.id, 128) > kind.bit_width


def holds(found: DuckType, kind: pa.DataType) -> bool:
    """Whether a type that fits has all fields and values of the table's: DuckDB casts all files to the first one's."""
    types = pa.types
    if types.is_struct(kind):
        known = {fold(name): child for name, child in found.children}
        fields = {fold(field.name): field.type for field in kind.fields}
        return all(name in known and holds(known[name], each) for name, each in fields.items())
    if types.is_map(kind):
        parts = dict(found.children)
        return holds(parts["key"], kind.key_type) and holds(parts["value"], kind.item_type)
    if types.is_list(kind):
        return holds(dict(found.children)["child"], kind.value_type)
    if types.is_integer(kind):
        return bool(_WIDTHS.get(found.id, 0) >= kind.bit_width)
    if types.is_floating(kind):
        return found.id == str(kind)
    if types.is_decimal(kind):
        parts = dict(found.children) if found.id == "decimal" else {"precision": 0, "scale": 0}
        whole = parts["precision"] - parts["scale"]
        return bool(whole >= kind.precision - kind.scale and parts["scale"] >= kind.scale)
    return not types.is_timestamp(kind) or found.id in ("timestamp", "timestamp with time zone")
