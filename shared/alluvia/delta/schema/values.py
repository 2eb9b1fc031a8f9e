"""Fit values of dicts before Arrow converts them, because Arrow would truncate, drop or misread some. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.type_names import type_name
from alluvia.errors import Invalid

_FLOAT32_MAX = 3.4028234663852886e38
_WHOLE_DIGITS = 40
"""More digits than any column of whole numbers has."""
_Fitted = Callable[[Any, Any], Any]


def fitted_value(value: Any, kind: pa.DataType, path: str) -> Any:
    """Return a value that is not None as Arrow takes it for a column's type, parts of nested ones too.

    The rules are those of `conversion`. Raises `Invalid`, naming the column, for a value of another type.
    """
    fit = _nested_fit(kind, path) or next((fit for matches, fit in _FITS if matches(kind)), None)
    is_flag = isinstance(value, bool) and not pa.types.is_boolean(kind)  # which Python takes for a number
    found = None if fit is None or is_flag else fit(value, kind)
    if found is None:
        raise Invalid(f"column {path}: {_shown(value)} is not a valid {type_name(kind)}")
    return found


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply to show"


def _whole(value: Any, _: Any) -> Any:
    if isinstance(value, Decimal):
        fits = value.is_finite() and value.as_tuple().exponent == 0 and value.adjusted() < _WHOLE_DIGITS
        return int(value) if fits else None
    return value if isinstance(value, Integral) else None


def _decimal(value: Any, _: Any) -> Any:
    return value if isinstance(value, (Integral, Decimal)) else None


def _floating(value: Any, kind: pa.DataType) -> Any:
    if not isinstance(value, (Real, Decimal)):
        return None
    found = float(value) if isinstance(value, Decimal) else value
    if pa.types.is_float32(kind) and _FLOAT32_MAX < abs(float(found)) < math.inf:
        return None
    return found


def _moment(value: Any, kind: Any) -> Any:
    if isinstance(value, datetime):
        return value if kind.tz is not None or value.tzinfo is None else None
    if not isinstance(value, date):
        return None
    return datetime(value.year, value.month, value.day, tzinfo=None if kind.tz is None else UTC)


def _is_a(*types: type, but: tuple[type, ...] = ()) -> _Fitted:
    return lambda value, _: value if isinstance(value, types) and not isinstance(value, but) else None


_FITS: list[tuple[Callable[[pa.DataType], bool], _Fitted]] = [
    (pa.types.is_boolean, _is_a(bool)),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _is_a(str)),
    (pa.types.is_binary, _is_a(bytes, bytearray, memoryview)),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_date, _is_a(date, but=(datetime,))),
]


def _nested_fit(kind: pa.DataType, path: str) -> _Fitted | None:
    fits: list[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any, str], Any]]] = [
        (pa.types.is_struct, _struct), (pa.types.is_map, _map), (pa.types.is_list, _list),
    ]  # fmt: skip
    found = next((fit for matches, fit in fits if matches(kind)), None)
    return None if found is None else lambda value, kind: found(value, kind, path)


def _part(value: Any, kind: pa.DataType, path: str) -> Any:
    return None if value is None else fitted_value(value, kind, path)


def _map(value: Any, kind: pa.MapType, path: str) -> Any:
    pairs = value.items() if isinstance(value, Mapping) else value
    if isinstance(value, str) or not hasattr(pairs, "__iter__"):
        return None
    pairs = list(pairs)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return None
    return [
        (_part(key, kind.key_type, f"{path}.key"), _part(item, kind.item_type, f"{path}.value")) for key, item in pairs
    ]


def _list(value: Any, kind: Any, path: str) -> Any:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        return None
    return [_part(item, kind.value_type, f"{path}.element") for item in value]


def _struct(value: Any, kind: Any, path: str) -> Any:
    if not isinstance(value, Mapping):
        return None
    fields = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    unknown = next((name for name in value if name not in fields), None)
    if unknown is not None:
        raise Invalid(f"column {path}: field {unknown} is not in the table")
    return {name: _part(part, fields[name], f"{path}.{name}") for name, part in value.items()}
