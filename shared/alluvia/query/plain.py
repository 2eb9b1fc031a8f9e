"""Convert Arrow values to plain Python values that JSON can represent. Pure.

| Type | in JSON |
|---|---|
| integers, decimals, also 64 and 128 bits | numbers, with all their digits |
| floating point | numbers; NaN and the infinities, which JSON lacks, are null |
| timestamp | ISO 8601 text, with `Z` if the type has a time zone (always UTC), and a fraction if there is one |
| date, time | ISO 8601 text |
| interval | an ISO 8601 duration |
| binary | base64 text |
| list, struct | array, object |
| map | object if its keys are text, else an array of `{"key", "value"}` |
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_SECONDS = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_INFINITE_DAYS = (2**31 - 1, -(2**31) + 1)
_INFINITE_MOMENTS = (2**63 - 1, -(2**63) + 1)


def plain_values(array: pa.Array) -> list[Any]:
    """Return an array's values; what orjson cannot write as it is comes as an `orjson.Fragment` of its text."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_values(array.storage)
    if pa.types.is_dictionary(kind):
        return plain_values(array.dictionary_decode())
    for matches, convert in _CONVERTERS:
        if matches(kind):
            return convert(array)
    return list(array.to_pylist())


def _each(array: pa.Array, convert: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _decimals(array: pa.Array) -> list[Any]:
    return _each(array, lambda value: orjson.Fragment(decimal_text(value)))


def decimal_text(value: Decimal) -> str:
    """Return a decimal's digits, without an exponent."""
    return format(value, "f")


def _binary(array: pa.Array) -> list[Any]:
    return _each(array, lambda value: b64encode(value).decode())


def _timestamps(array: pa.Array) -> list[Any]:
    unit = array.type.unit
    zone = "Z" if array.type.tz is not None else ""
    return _each(array.cast(pa.int64()), lambda value: _moment(value, unit, zone))


def _moment(value: int, unit: str, zone: str) -> str:
    if value in _INFINITE_MOMENTS:
        return "infinity" if value > 0 else "-infinity"
    seconds, fraction = divmod(value, _PER_SECOND[unit])
    days, second = divmod(seconds, _DAY_SECONDS)
    return f"{_day(days)}T{_clock(second, fraction, _DIGITS[unit])}{zone}"


def _dates(array: pa.Array) -> list[Any]:
    return _each(array.cast(pa.int32()), _date)


def _date(days: int) -> str:
    if days in _INFINITE_DAYS:
        return "infinity" if days > 0 else "-infinity"
    return _day(days)


def _day(days: int) -> str:
    """Return a day; beyond the years 0 to 9999 with a sign and more digits, as ISO 8601 has it.

    The calendar repeats every 146,097 days, which are 400 years.
    """
    cycle, rest = divmod(days + _EPOCH_DAY - 1, 146_097)
    day = date.fromordinal(rest + 1)
    year = day.year + cycle * 400
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06d}"
    return f"{shown}-{day.month:02d}-{day.day:02d}"


def _times(array: pa.Array) -> list[Any]:
    unit = array.type.unit
    scale, digits = _PER_SECOND[unit], _DIGITS[unit]
    integers = array.cast(pa.int32() if pa.types.is_time32(array.type) else pa.int64())
    return _each(integers, lambda value: _clock(value // scale, value % scale, digits))


def _clock(second: int, fraction: int, digits: int) -> str:
    shown = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{shown}.{fraction:0{digits}d}".rstrip("0") if fraction else shown


def _intervals(array: pa.Array) -> list[Any]:
    return _each(array, lambda value: _duration(value.months, value.days, value.nanoseconds))


def _duration(months: int, days: int, nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else ""
    seconds, fraction = divmod(abs(nanoseconds), 1_000_000_000)
    shown = f"{sign}{seconds}" + (f".{fraction:09d}".rstrip("0") if fraction else "")
    parts = [f"{months}M" if months else "", f"{days}D" if days else "", f"T{shown}S" if nanoseconds else ""]
    return "P" + "".join(parts) if any(parts) else "PT0S"


def _durations(array: pa.Array) -> list[Any]:
    scale = 1_000_000_000 // _PER_SECOND[array.type.unit]
    return _each(array.cast(pa.int64()), lambda value: _duration(0, 0, value * scale))


def _structs(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    rows = zip(*(plain_values(array.field(at)) for at in range(len(names))), strict=True)
    valid = array.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]


def _lists(array: pa.Array) -> list[Any]:
    return [None if not one.is_valid else plain_values(one.values) for one in array]


def _maps(array: pa.Array) -> list[Any]:
    text_keys = pa.types.is_string(array.type.key_type) or pa.types.is_large_string(array.type.key_type)
    found: list[Any] = []
    for one in array:
        if not one.is_valid:
            found.append(None)
            continue
        keys, items = plain_values(one.values.field(0)), plain_values(one.values.field(1))
        pairs = list(zip(keys, items, strict=True))
        found.append(dict(pairs) if text_keys else [{"key": key, "value": item} for key, item in pairs])
    return found


def _unions(array: pa.Array) -> list[Any]:
    """Return each value by the rules of the member that holds it."""
    members = [plain_values(array.field(at)) for at in range(array.type.num_fields)]
    return [members[code][at] for at, code in enumerate(array.type_codes.to_pylist())]


_CONVERTERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]]] = [
    (pa.types.is_decimal, _decimals),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_date32, _dates),
    (pa.types.is_time, _times),
    (pa.types.is_interval, _intervals),
    (pa.types.is_duration, _durations),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), _binary),
    (pa.types.is_fixed_size_binary, _binary),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
    (lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind), _lists),
    (pa.types.is_fixed_size_list, _lists),
    (pa.types.is_union, _unions),
]
