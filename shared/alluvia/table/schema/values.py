"""Check values of dicts before Arrow converts them, because Arrow would truncate, drop or misread some. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.table.schema.type_names import type_name

_FLOAT32_MAX = 3.4028234663852886e38
_FITS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], bool]]] = [
    (pa.types.is_integer, lambda value: isinstance(value, Integral)),
    (pa.types.is_float32, lambda value: isinstance(value, Real) and not _FLOAT32_MAX < abs(float(value)) < math.inf),
    (pa.types.is_floating, lambda value: isinstance(value, Real)),
    (pa.types.is_decimal, lambda value: isinstance(value, (Integral, Decimal))),
    (pa.types.is_string, lambda value: isinstance(value, str)),
    (pa.types.is_binary, lambda value: isinstance(value, (bytes, bytearray, memoryview))),
    (pa.types.is_date, lambda value: isinstance(value, date) and not isinstance(value, datetime)),
]


def check_value(value: Any, kind: pa.DataType, path: str) -> None:
    """Raise `Invalid`, naming the column, unless a value is null or of a column's type, parts of nested ones too."""
    if value is not None and not _fits(value, kind, path):
        raise Invalid(f"column {path}: {_shown(value)} is not a valid {type_name(kind)}")


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply to show"


def _fits(value: Any, kind: pa.DataType, path: str) -> bool:
    if pa.types.is_boolean(kind) or isinstance(value, bool):
        return pa.types.is_boolean(kind) and isinstance(value, bool)
    if pa.types.is_timestamp(kind):
        return isinstance(value, datetime) and (kind.tz is not None or value.tzinfo is None)
    if pa.types.is_struct(kind):
        return _fits_struct(value, kind, path)
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        if isinstance(value, str) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            return False
        for key, item in pairs:
            check_value(key, kind.key_type, f"{path}.key")
            check_value(item, kind.item_type, f"{path}.value")
        return True
    if pa.types.is_list(kind):
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
            return False
        for item in value:
            check_value(item, kind.value_type, f"{path}.element")
        return True
    return next((bool(fits(value)) for matches, fits in _FITS if matches(kind)), False)


def _fits_struct(value: Any, kind: pa.DataType, path: str) -> bool:
    if not isinstance(value, Mapping):
        return False
    fields = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    for name, part in value.items():
        if name not in fields:
            raise Invalid(f"column {path}: field {name} is not in the table")
        check_value(part, fields[name], f"{path}.{name}")
    return True
