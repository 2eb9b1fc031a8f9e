"""The names of types as users write them, timestamps with and without a zone, and the forms of text and bytes. Pure.

SQL names are accepted as input, in any case: `BIGINT`, `varchar`, `timestamptz`. `timestamp` has two meanings; here it
is Delta's: `timestamp` is a moment in UTC, `timestamp_ntz` a time without a zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.names import fold


def is_zoned(kind: pa.DataType) -> bool:
    """Whether values of a type are moments, and not times of some unknown zone, or no times."""
    return pa.types.is_timestamp(kind) and kind.tz is not None


_ZONED_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH = _ZONED_EPOCH.replace(tzinfo=None)
_ZONED, _PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")


def as_moment(value: Any) -> Any:
    """Return what `as_py` gives for a time, several times as fast. Raises `OverflowError` or `ValueError`."""
    kind = value.type
    epoch = _ZONED_EPOCH if kind == _ZONED else _EPOCH
    if epoch is _EPOCH and kind != _PLAIN:
        return value.as_py()
    return epoch + timedelta(microseconds=value.value) if value.is_valid else None


def moment(text: str, kind: pa.DataType) -> datetime:
    """Read an ISO time as a value of a column. Raises `ValueError`."""
    read = datetime.fromisoformat(text)
    if not is_zoned(kind):
        return read.replace(tzinfo=None)
    if read.tzinfo is UTC:  # the usual case, and astimezone takes as long as all else
        return read
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


_SQL = {
    "varchar": "string", "text": "string", "char": "string", "bpchar": "string",
    "bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte",
    "real": "float", "double precision": "double", "bool": "boolean",
    "blob": "binary", "bytea": "binary", "varbinary": "binary",
    "timestamptz": "timestamp", "timestamp with time zone": "timestamp", "timestamp without time zone": "timestamp_ntz",
}  # fmt: skip
_ARROW = {
    "string": "string", "large_string": "string", "string_view": "string", "int64": "long", "int32": "integer",
    "int16": "short", "int8": "byte", "float": "float", "double": "double", "bool": "boolean", "binary": "binary",
    "large_binary": "binary", "date32[day]": "date", "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
}  # fmt: skip
_SPACE = re.compile(r"\s+")
_NUMERIC = re.compile(r"^(?:numeric|dec)(?=\()")


def normal_name(text: str) -> str:
    """Return Delta's name for SQL's name of a type, in any case; anything else as it is, folded."""
    name = _NUMERIC.sub("decimal", _SPACE.sub(" ", fold(text.strip())).replace(" (", "("))
    return _SQL.get(name, name)


def split_types(text: str, separators: str = ",") -> list[str]:
    """Cut a list of types at what separates them outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "(<") - (letter in ")>")
        if letter in separators and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def type_name(kind: pa.DataType) -> str:
    """Return Delta's name of a type; Arrow's of one, or of a part of one, that Delta lacks."""
    types = pa.types
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind.fields)}>"
    if types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    return _ARROW.get(str(kind), str(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds text, in any of its forms."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds bytes, in any of its forms."""
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(check(kind) for check in checks)
