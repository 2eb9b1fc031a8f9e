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
| map | object if its keys are text and none comes twice, else an array of `{"key", "value"}` |
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
    if isinstance(array, pa.ExtensionArray):
        return plain_values(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return plain_values(array.dictionary_decode())
    convert = _CONVERTERS.get(type(array))
    return array.to_pylist() if convert is None else convert(array)


def _each(array: pa.Array, convert: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _decimals(array: pa.Array) -> list[Any]:
    return _each(array, lambda value: orjson.Fragment(decimal_text(value)))


def decimal_text(value: Decimal) -> str:
    """Return a decimal's digits, without an exponent."""
    return format(value, "f")


def _binary(array: pa.Array) -> list[Any]:
    return _each(array, lambda value: b64encode(value).decode())


def _timestamps(array: pa.TimestampArray) -> list[Any]:
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
    """Return a day; beyond the years 0 to 9999 with a sign and more digits, by ISO 8601.

    The calendar repeats every 146,097 days, which are 400 years.
    """
    cycle, rest = divmod(days + _EPOCH_DAY - 1, 146_097)
    day = date.fromordinal(rest + 1)
    year = day.year + cycle * 400
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06d}"
    return f"{shown}-{day.month:02d}-{day.day:02d}"


def _times(array: pa.Time32Array | pa.Time64Array) -> list[Any]:
    unit = array.type.unit
    scale, digits = _PER_SECOND[unit], _DIGITS[unit]
    integers = array.cast(pa.int32() if isinstance(array, pa.Time32Array) else pa.int64())
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


def _durations(array: pa.DurationArray) -> list[Any]:
    scale = 1_000_000_000 // _PER_SECOND[array.type.unit]
    return _each(array.cast(pa.int64()), lambda value: _duration(0, 0, value * scale))


def _structs(array: pa.StructArray) -> list[Any]:
    names = [field.name for field in array.type]
    rows = zip(*(plain_values(array.field(at)) for at in range(len(names))), strict=True)
    valid = array.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]


def _lists(array: pa.ListArray) -> list[Any]:
    return [None if not one.is_valid else plain_values(one.values) for one in array]


def _maps(array: pa.MapArray) -> list[Any]:
    text_keys = pa.types.is_string(array.type.key_type) or pa.types.is_large_string(array.type.key_type)
    maps: list[Any] = []
    for one in array:
        if not one.is_valid:
            maps.append(None)
            continue
        keys, items = plain_values(one.values.field(0)), plain_values(one.values.field(1))
        pairs = list(zip(keys, items, strict=True))
        by_key = dict(pairs) if text_keys else None
        whole = by_key is not None and len(by_key) == len(pairs)
        maps.append(by_key if whole else [{"key": key, "value": item} for key, item in pairs])
    return maps


def _unions(array: pa.UnionArray) -> list[Any]:
    """Return each value by the rules of the member that holds it."""
    members = [plain_values(array.field(at)) for at in range(array.type.num_fields)]
    return [members[code][at] for at, code in enumerate(array.type_codes.to_pylist())]


_CONVERTERS: dict[type[pa.Array], Callable[[Any], list[Any]]] = {
    pa.Decimal32Array: _decimals,
    pa.Decimal64Array: _decimals,
    pa.Decimal128Array: _decimals,
    pa.Decimal256Array: _decimals,
    pa.TimestampArray: _timestamps,
    pa.Date32Array: _dates,
    pa.Time32Array: _times,
    pa.Time64Array: _times,
    pa.MonthDayNanoIntervalArray: _intervals,
    pa.DurationArray: _durations,
    pa.BinaryArray: _binary,
    pa.LargeBinaryArray: _binary,
    pa.FixedSizeBinaryArray: _binary,
    pa.StructArray: _structs,
    pa.MapArray: _maps,
    pa.ListArray: _lists,
    pa.LargeListArray: _lists,
    pa.FixedSizeListArray: _lists,
    pa.UnionArray: _unions,
}
