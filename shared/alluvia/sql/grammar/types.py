"""The types of columns as SQL writes them. Pure."""

from __future__ import annotations

import pyarrow as pa

from alluvia.delta.schema.serialization import primitive_type
from alluvia.errors import Invalid
from alluvia.sql.grammar.cursor import Cursor

_OTHER_NAMES = {
    "int8": "long", "int4": "integer", "int2": "short", "int1": "byte", "float8": "double", "float4": "float",
    "logical": "boolean", "datetime": "timestamp_ntz", "nvarchar": "string", "character": "string",
}  # fmt: skip
_VARIANT = "STRING, and TBLPROPERTIES ('alluvia.properties' = 'variant') for the column properties of events"
_INSTEAD = {
    "hugeint": "DECIMAL(38, 0)", "uhugeint": "DECIMAL(38, 0)", "ubigint": "DECIMAL(20, 0)", "uinteger": "BIGINT",
    "usmallint": "INTEGER", "utinyint": "SMALLINT", "uuid": "STRING", "json": "STRING", "variant": _VARIANT,
    "enum": "STRING", "time": "STRING", "timetz": "STRING", "interval": "BIGINT, as a number of seconds",
    "bit": "BINARY", "union": "STRUCT", "serial": "BIGINT", "timestamp_s": "TIMESTAMP", "timestamp_ms": "TIMESTAMP",
    "timestamp_ns": "TIMESTAMP", "number": "DECIMAL with its digits, such as DECIMAL(10, 2), or BIGINT",
    "varchar2": "STRING",
}  # fmt: skip
_LENGTHS = frozenset({"varchar", "char", "bpchar", "character", "nvarchar", "string", "text", "varbinary", "binary"})


def column_type(cursor: Cursor) -> pa.DataType:
    """Take a type: Delta's names and SQL's, with `T[]`, `ARRAY<T>`, `MAP(K, V)` and `STRUCT(a T, …)`.

    Elements, values and fields may be NOT NULL.
    """
    kind = _element(cursor)
    while cursor.accept("[", "]"):
        kind = pa.list_(kind)
    return kind


def _element(cursor: Cursor) -> pa.DataType:
    word = cursor.word()
    bracket = cursor.word(1)
    if word in ("array", "map", "struct", "row") and bracket in ("(", "<"):
        cursor.at += 2
        kind = _nested(word, cursor)
        cursor.expect(")" if bracket == "(" else ">")
        return kind
    name = cursor.identifier("the type of the column").lower()
    if name in _INSTEAD:
        raise Invalid(f"Delta has no type {name.upper()}: use {_INSTEAD[name]}")
    if name == "double":
        cursor.accept("precision")
    if name == "character":
        cursor.accept("varying")
    if name in ("timestamp", "time") and cursor.word() in ("with", "without"):
        zoned = cursor.accept("with", "time", "zone")
        if not zoned:
            cursor.expect("without", "time", "zone")
        name = "timestamp" if zoned else "timestamp_ntz"
    if name in _LENGTHS and cursor.accept("("):
        cursor.number("a length")
        cursor.expect(")")
    if name in ("decimal", "numeric", "dec"):
        name = _decimal(cursor)
    return primitive_type(_OTHER_NAMES.get(name, name))


def _decimal(cursor: Cursor) -> str:
    if not cursor.accept("("):
        return "decimal(18,3)"  # as in DuckDB
    width = cursor.number("the digits")
    scale = cursor.number("the digits after the point") if cursor.accept(",") else 0
    cursor.expect(")")
    return f"decimal({width},{scale})"


def _nested(word: str, cursor: Cursor) -> pa.DataType:
    if word == "array":
        return pa.list_(_part(cursor, "element"))
    if word == "map":
        key = column_type(cursor)
        cursor.expect(",")
        return pa.map_(key, _part(cursor, "value"))
    fields: list[pa.Field] = []
    while not fields or cursor.accept(","):
        name = cursor.identifier("the name of a field")
        cursor.accept(":")
        fields.append(_part(cursor, name))
    return pa.struct(fields)


def _part(cursor: Cursor, name: str) -> pa.Field:
    kind = column_type(cursor)
    if cursor.word() == "[":
        raise Invalid("only a column itself can have lists of a fixed size: write [] within other types")
    return pa.field(name, kind, nullable=not cursor.accept("not", "null"))
