"""Convert JSON values to Arrow columns of a declared type. A value that the type cannot hold exactly is refused. Pure.

Fields of CSV and forms are text: `read_text` makes values of them first.

| Column | JSON that fits |
|---|---|
| string | a string |
| long, integer, short, byte | a number without a fraction, in range (`2.0` is 2) |
| double, float | a number that the type holds exactly: not 2^53 + 1, not 0.123456789 for a float |
| decimal | a number, or a string with a number, that needs no rounding |
| boolean | true, false |
| date | `"2026-11-20"` |
| timestamp | as for `ts`, down to the microsecond; timestamp_ntz: ISO 8601 text without an offset |
| binary | base64 (RFC 4648, with padding) |
| struct, map | an object; a struct accepts only its own fields; the keys of a map are strings |
| array | an array |
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.errors import Invalid, Unsupported
from alluvia.json_values.instants import TIMESTAMP, instants
from alluvia.json_values.jsontext import ExactNumber, decode, describe, exact_number, survives_double
from alluvia.json_values.time_texts import instant, naive_instant

_NUMBER = re.compile(r"[-+]?[0-9]{1,100}(?:\.[0-9]{1,100})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_OPEN = re.compile(r"([-+]?)(?:([0-9]{1,100})\.|\.([0-9]{1,100}))((?:[eE][-+]?[0-9]{1,3})?)", re.ASCII)
"""A number that begins or ends with its decimal point."""
_BOOLEANS = {"true": True, "false": False}


def number_of(text: str) -> int | float | ExactNumber | None:
    """Return the number that a text is; None if it is none."""
    text = text.strip()
    return exact_number(text.removeprefix("+")) if _NUMBER.fullmatch(text) else None


def read_text(kind: pa.DataType, value: object) -> object:
    """Return what a column of that type takes for a text: a number, a boolean, a value in JSON, or null for "".

    Returns a text as it is for columns that take text, and where it says nothing that the type can hold.
    """
    if not isinstance(value, str) or pa.types.is_string(kind):
        return value
    if not value:
        return None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        number = number_of(_closed(value.strip()) if pa.types.is_floating(kind) else value)
        return value if number is None else number
    if pa.types.is_decimal(kind):
        return _closed(value)
    if kind == TIMESTAMP:
        return value.strip()
    if pa.types.is_boolean(kind):
        return _BOOLEANS.get(value.strip().lower(), value)
    if pa.types.is_nested(kind):
        try:
            return decode(value.encode("utf-8", "surrogatepass"))
        except Invalid:
            return value
    return value


def _closed(text: str) -> str:
    """Return a number with a digit on both sides of its point; anything else as it is."""
    match = _OPEN.fullmatch(text)
    return f"{match[1]}{match[2] or 0}.{match[3] or 0}{match[4]}" if match else text


Converter = Callable[[object, str], object]  # (value, path of the field) → what pa.array takes; Invalid

_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_NAMES = {pa.int8(): "byte", pa.int16(): "short", pa.int32(): "integer", pa.int64(): "long"}
_EASY: dict[int, type] = {pa.string().id: str, pa.bool_().id: bool, pa.float64().id: float}
_EASY |= dict.fromkeys((kind.id for kind in _BITS), int)
_DECIMAL = re.compile(r"-?[0-9]{1,80}(?:\.[0-9]{1,80})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_COMMA_NUMBER = re.compile(r"\s*[-+]?[0-9]+(?:[.,][0-9]{3})*,[0-9]+\s*", re.ASCII)
_GROUPS = re.compile(r"\s*[-+]?[0-9]{1,3}(?:,[0-9]{3})+\s*", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def column(field: pa.Field, values: Sequence[object]) -> tuple[pa.Array, dict[int, str]]:
    """Return the values as an array of the field's type, and the reasons of those that do not fit, by index.

    The array has null for those that do not fit. Unsupported for a type that JSON cannot fill.
    """
    array, odd = _at_once(field.type, values)
    reasons: dict[int, str] = {}
    if odd:
        converted, reasons = _one_by_one(field, values, odd)
        if array is None:
            array = pa.array([converted.get(at) for at in range(len(values))], field.type)
        else:
            mask = pa.array([at in converted for at in range(len(values))])
            array = pc.replace_with_mask(array, mask, pa.array(converted.values(), field.type))
    elif array is None:
        array = pa.nulls(len(values), field.type)
    if not field.nullable and array.null_count:
        missing = (index for index, value in enumerate(values) if value is None)
        reasons |= dict.fromkeys(missing, f"{field.name}: required, but missing or null")
    return array, reasons


def _at_once(kind: pa.DataType, values: Sequence[object]) -> tuple[pa.Array | None, Sequence[int]]:
    """Return an array of the values that are what they should be, and the indexes of those to look at, without nulls.

    None instead of an array where that is all of them; else it has null for them.
    """
    if kind == TIMESTAMP:
        array = instants(values)
        unknown = pc.indices_nonzero(pc.is_null(array)).to_pylist() if array.null_count else ()
        return array, [at for at in unknown if values[at] is not None]
    given = set(map(type, values)) - {type(None)}
    if not given:
        return None, ()
    easy = _EASY.get(kind.id)
    odd: Sequence[int] = ()
    if given != {easy}:
        odd = [at for at, value in enumerate(values) if value is not None and type(value) is not easy]
    if easy is not None:
        try:
            return pa.array(_without(values, odd) if odd else values, kind), odd
        except (pa.ArrowInvalid, OverflowError):  # an integer out of range
            odd = [at for at, value in enumerate(values) if value is not None]
    return None, odd


def _without(values: Sequence[object], places: Sequence[int]) -> list[object]:
    rest = list(values)
    for at in places:
        rest[at] = None
    return rest


def _one_by_one(
    field: pa.Field, values: Sequence[object], places: Sequence[int]
) -> tuple[dict[int, object], dict[int, str]]:
    convert = _converter(field.type, field.name)
    converted: dict[int, object] = {}
    reasons: dict[int, str] = {}
    for at in places:
        try:
            converted[at] = convert(values[at], field.name)
        except Invalid as error:
            converted[at] = None
            reasons[at] = str(error)
    return converted, reasons


@lru_cache(maxsize=1024)  # requests come one after another for the same few tables
def _converter(kind: pa.DataType, path: str) -> Converter:
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if kind in _BITS:
        return _integer(_NAMES[kind], 2 ** (_BITS[kind] - 1))
    if pa.types.is_decimal128(kind):
        return _decimal(kind)
    if pa.types.is_struct(kind):
        return _struct(kind, path)
    if pa.types.is_map(kind):
        return _map(kind, path)
    if pa.types.is_list(kind):
        return _list(kind, path)
    raise Unsupported(f"column {path}: ingestion does not support the type {kind}")


_BY_OPTION = "give --decimal-separator , (decimal_separator)"
_GROUPING = "if they group digits, give --thousands-separator , (thousands_separator)"


def of_json(reason: str, *, rejects: bool) -> str:
    """Return the reason why a value of JSON does not fit: no option says how its numbers are read.

    rejects: whether it becomes a reject.
    """
    fix = "send a point, or repair the rejects with `alluvia rejects replay --set`" if rejects else "write a point"
    return reason.replace(_GROUPING, "write it without commas").replace(_BY_OPTION, fix)


def _comma_hint(value: object) -> str:
    """Return what to add to the error about a number that seems to have a decimal comma; "" for another value."""
    if not isinstance(value, str) or not _COMMA_NUMBER.fullmatch(value):
        return ""
    if _GROUPS.fullmatch(value):
        return f"; {_GROUPING}, or, if they are decimal ones, {_BY_OPTION}"
    return f"; the decimal separator seems to be a comma: {_BY_OPTION}"


def _wrong(path: str, expected: str, value: object) -> Invalid:
    hint = _comma_hint(value) if expected.startswith("a number") else ""
    return Invalid(f"{path}: expected {expected}, got {describe(value)}{hint}")


def _string(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(path, "a string", value)


def _boolean(value: object, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(path, "true or false", value)


def _integer(name: str, limit: int) -> Converter:
    def convert(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float, ExactNumber)):
            raise _wrong(path, f"a number ({name})", value)
        if isinstance(value, float) and not value.is_integer():
            raise Invalid(f"{path}: {value} has a fraction, which a {name} cannot hold")
        if isinstance(value, ExactNumber):
            raise Invalid(f"{path}: the number does not fit a {name}")
        if not -limit <= value < limit:
            raise Invalid(f"{path}: the number does not fit a {name}, whose maximum is {limit - 1}")
        return int(value)

    return convert


def _double(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, ExactNumber)):
        raise _wrong(path, "a number (double)", value)
    text = value.text if isinstance(value, ExactNumber) else str(value)
    if isinstance(value, ExactNumber) and len(text) < 400 and text.lstrip("-").isdigit():  # 400: beyond any double
        value = int(text)
    if float(text) != value and not survives_double(text):
        raise Invalid(f"{path}: the number has more digits than a double can hold; use a decimal or string column")
    return float(text)


def _float(value: object, path: str) -> float:
    number = _double(value, path)
    try:
        nearest: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        raise Invalid(f"{path}: the number does not fit a float; use a double column") from None
    # 6 to 9 digits: the range in which a 32-bit float has a shortest decimal form.
    if nearest != number and not any(float(f"{nearest:.{digits}g}") == number for digits in (6, 7, 8, 9)):
        raise Invalid(f"{path}: the number has more digits than a float can hold; use a double column")
    return number


def _decimal(kind: pa.Decimal128Type) -> Converter:
    name = f"decimal({kind.precision},{kind.scale})"

    def convert(value: object, path: str) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (int, float, str, ExactNumber)):
            raise _wrong(path, f"a number ({name})", value)
        text = value.text if isinstance(value, ExactNumber) else str(value)
        if not _DECIMAL.fullmatch(text):
            hint = _comma_hint(value)
            raise Invalid(f"{path}: expected a number ({name}) with at most 80 digits{hint}")
        sign, digits, exponent = Decimal(text).as_tuple()
        if not isinstance(exponent, int):
            raise _wrong(path, f"a number ({name})", value)
        significant = "".join(map(str, digits)).lstrip("0")
        trimmed = significant.rstrip("0")
        exponent += len(significant) - len(trimmed)
        if trimmed and (-exponent > kind.scale or len(trimmed) + exponent > kind.precision - kind.scale):
            raise Invalid(f"{path}: the number does not fit a {name} without rounding")
        return Decimal((sign, tuple(map(int, trimmed or "0")), exponent if trimmed else 0))

    return convert


def _date(value: object, path: str) -> date:
    if not isinstance(value, str):
        raise _wrong(path, 'a date such as "2026-11-20"', value)
    try:
        day = date.fromisoformat(value) if _DATE.fullmatch(value) else None
    except ValueError:  # such as February 30
        day = None
    if day is None:
        raise Invalid(f'{path}: expected a date such as "2026-11-20"')
    return day


def _timestamp(value: object, path: str) -> int:
    moment = instant(value)
    if moment is None:
        text = 'ISO 8601 text such as "2026-11-20T10:00:00Z"'
        number = "a number of seconds, ms, µs or ns since 1970"
        raise _wrong(path, f"a timestamp: {text}, or {number}", value)
    if not moment[1]:
        raise Invalid(f"{path}: the time has more than microsecond precision")
    return moment[0]


def _timestamp_ntz(value: object, path: str) -> int:
    moment = naive_instant(value)
    if moment is None:
        raise Invalid(f"{path}: expected a timestamp without an offset: ISO 8601 text")
    if not moment[1]:
        raise Invalid(f"{path}: the time has more than microsecond precision")
    return moment[0]


def _binary(value: object, path: str) -> bytes:
    if not isinstance(value, str):
        raise _wrong(path, "a base64 string", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"{path}: the string is not valid base64 with padding") from None


def _struct(kind: pa.StructType, path: str) -> Converter:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    converters = {field.name: (_converter(field.type, f"{path}.{field.name}"), field.nullable) for field in fields}

    def convert(value: object, path: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        for name in value:
            if name not in converters:
                raise Invalid(f"{path}.{name}: the column has no such field")
        return {
            name: _nested(value.get(name), inner, nullable, f"{path}.{name}")
            for name, (inner, nullable) in converters.items()
        }

    return convert


def _map(kind: pa.MapType, path: str) -> Converter:
    if not pa.types.is_string(kind.key_type):
        raise Unsupported(f"column {path}: ingestion supports maps only with string keys")
    inner, nullable = _converter(kind.item_type, path), kind.item_field.nullable

    def convert(value: object, path: str) -> list[tuple[str, object]]:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        return [(key, _nested(item, inner, nullable, f"{path}.{key}")) for key, item in value.items()]

    return convert


def _list(kind: pa.ListType, path: str) -> Converter:
    inner, nullable = _converter(kind.value_type, path), kind.value_field.nullable

    def convert(value: object, path: str) -> list[object]:
        if not isinstance(value, list):
            raise _wrong(path, "an array", value)
        return [_nested(item, inner, nullable, f"{path}[{index}]") for index, item in enumerate(value)]

    return convert


def _nested(value: object, convert: Converter, nullable: bool, path: str) -> object:
    if value is not None:
        return convert(value, path)
    if nullable:
        return None
    raise Invalid(f"{path}: required, but missing or null")


_SIMPLE: dict[pa.DataType, Converter] = {
    pa.string(): _string,
    pa.bool_(): _boolean,
    pa.float64(): _double,
    pa.float32(): _float,
    pa.date32(): _date,
    TIMESTAMP: _timestamp,
    pa.timestamp("us"): _timestamp_ntz,
    pa.binary(): _binary,
}
