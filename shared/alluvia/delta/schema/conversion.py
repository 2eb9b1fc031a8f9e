"""Convert Arrow values to the types of a table's columns, wherever rows come from, so that nothing is lost. Pure.

| Column | takes |
|---|---|
| integer | integers, and decimals without a fraction in their type, such as a `sum`, in the column's range |
| decimal | integers and decimals with no more digits on either side |
| floating point | integers that it holds exactly, decimals, and floating-point numbers in its range |
| timestamp | timestamps, with a zone only if it has one itself, and dates, as midnight |
| date, text, bytes, boolean | its own kind |
| struct | structs with no other fields; fields without names count in their order; a missing one is null |
| array, map | arrays and maps of what its elements, keys and values take |

Anything else is refused: text is never a number, nor a number text.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.nesting import with_children
from alluvia.delta.schema.types import is_bytes, is_text, is_zoned, type_name
from alluvia.errors import Invalid


def parts_of(values: Any) -> list[Any]:
    """Return the arrays that a nested array is made of, in the order of its type; values that a null hides may remain.

    None of an array that is not nested. Fields of a union are included.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return list(values.flatten())
    if pa.types.is_map(kind):
        return [values.keys, values.items]
    if pa.types.is_union(kind):
        return [values.field(at) for at in range(kind.num_fields)]
    if isinstance(kind, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)):
        return [values.flatten()]
    return []


def too_long(values: pa.Array | pa.ChunkedArray) -> Decimal | None:
    """Return a decimal that has more digits than the type of its column, or of a part of it, allows; else None.

    Arrow has room for 39 digits. No other reader takes such a value: Spark refuses the file, or shows null.
    """
    if not has_decimals(values.type):
        return None
    if isinstance(values, pa.ChunkedArray):
        return next((number for chunk in values.chunks if (number := too_long(chunk)) is not None), None)
    if not pa.types.is_decimal(values.type):
        return next((number for part in parts_of(values) if (number := too_long(part)) is not None), None)
    bounds = pc.min_max(values)
    ends = (bounds["min"].as_py(), bounds["max"].as_py())
    return next((each for each in ends if each is not None and not digits_fit(each, values.type)), None)


def digits_fit(value: Decimal, kind: Any) -> bool:
    """Whether a decimal has no more digits before the point than a type of decimals has room for."""
    return not value or value.adjusted() < kind.precision - kind.scale


@lru_cache(maxsize=1024)
def has_decimals(kind: pa.DataType) -> bool:
    """Whether a type is one of decimals, or has such a part."""
    if pa.types.is_decimal(kind):
        return True
    return any(has_decimals(kind.field(at).type) for at in range(kind.num_fields))


Earlier = Callable[[pa.Array, pa.DataType, str], pa.Array | None]
"""What converts an array to a type, of the column or part with a name, before the rules do; None where it does not."""
_TYPES = pa.types
_Check = Callable[[pa.DataType], bool]


def _is_whole(kind: Any) -> bool:
    return _TYPES.is_integer(kind) or (_TYPES.is_decimal(kind) and kind.scale == 0)


def _is_number(kind: pa.DataType) -> bool:
    return _TYPES.is_integer(kind) or _TYPES.is_decimal(kind) or _TYPES.is_floating(kind)


_TAKES: list[tuple[_Check, _Check]] = [
    (_TYPES.is_integer, _is_whole),
    (_TYPES.is_decimal, lambda kind: _TYPES.is_integer(kind) or _TYPES.is_decimal(kind)),
    (_TYPES.is_floating, _is_number),
    (is_zoned, lambda kind: _TYPES.is_timestamp(kind) or _TYPES.is_date(kind)),
    (_TYPES.is_timestamp, lambda kind: (_TYPES.is_timestamp(kind) and not is_zoned(kind)) or _TYPES.is_date(kind)),
    (_TYPES.is_date, _TYPES.is_date),
    (is_text, is_text),
    (is_bytes, is_bytes),
    (_TYPES.is_boolean, _TYPES.is_boolean),
]


def converted(array: pa.Array, kind: pa.DataType, path: str, earlier: Earlier | None = None) -> pa.Array:
    """Return values in a column's type. Raises `Invalid`, naming the column or its part, for what does not fit."""
    if array.type.equals(kind):
        return array
    if isinstance(array, pa.DictionaryArray):
        return converted(array.cast(array.type.value_type), kind, path, earlier)
    if array.null_count == len(array) and (earlier is not None or _TYPES.is_null(array.type)):
        return pa.nulls(len(array), kind)
    early = None if earlier is None else earlier(array, kind, path)
    if early is not None:
        return early
    if isinstance(kind, pa.StructType) and isinstance(array, pa.StructArray):
        return _struct(array, kind, path, earlier)
    if isinstance(kind, pa.MapType) and isinstance(array, pa.MapArray):
        keys = converted(array.keys, kind.key_type, f"{path}.key", earlier)
        items = converted(array.items, kind.item_type, f"{path}.value", earlier)
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        return with_children(array, kind, entries)
    if isinstance(kind, pa.ListType) and isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        lists: Any = array
        if not isinstance(array, pa.ListArray):
            lists = array.cast(pa.list_(array.type.field(0)))
        values = converted(lists.values, kind.value_type, f"{path}.element", earlier)
        return with_children(lists, kind, values)
    if not any(is_kind(kind) and takes(array.type) for is_kind, takes in _TAKES):
        raise Invalid(
            f"column {path} is {type_name(kind)} in the table, but the rows have {type_name(array.type)}: cast them, "
            "or use another name; a column cannot change its type"
        )
    try:
        return _leaf(array, kind)
    except pa.ArrowException as error:
        reason = _lost_moment(array) or error
        raise Invalid(f"column {path}: a value does not fit {type_name(kind)}: {reason}") from error


def _lost_moment(array: pa.Array) -> str | None:
    """Return which moment microseconds cannot tell, and why; None if all can be told."""
    unit = array.type.unit if _TYPES.is_timestamp(array.type) else None
    if unit is None:
        return None
    numbers = (number for number in array.view(pa.int64()).to_pylist() if number is not None)
    if unit == "ns":
        number_lost = next((number for number in numbers if number % 1000), None)
        why = "has nanoseconds, and a timestamp microseconds: round it"
    else:
        scale = {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
        number_lost = next((number for number in numbers if abs(number) * scale >= 1 << 63), None)
        why = "is further from 1970 than a timestamp reaches"
    return None if number_lost is None else f"{number_lost} {unit} since 1970 {why}"


def _struct(array: pa.StructArray, kind: pa.StructType, path: str, earlier: Earlier | None) -> pa.Array:
    given, fields = [field.name for field in array.type], list(kind)
    if not any(given) and len(given) == len(fields):
        given = [field.name for field in fields]
    unknown = next((name for name in given if kind.get_field_index(name) < 0), None)
    if unknown is not None:
        raise Invalid(f"column {path}: field {unknown} is not in the table")
    if len(set(given)) < len(given):
        raise Invalid(f"column {path}: two fields of the rows have the same name")
    places = {name: at for at, name in enumerate(given)}
    children = [
        converted(array.field(places[field.name]), field.type, f"{path}.{field.name}", earlier)
        if field.name in places
        else pa.nulls(len(array), field.type)
        for field in fields
    ]
    if not children:
        return pa.array([{}] * len(array), kind)
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _leaf(array: pa.Array, kind: pa.DataType) -> pa.Array:
    source = array.type
    if _TYPES.is_date(source) and not _TYPES.is_date(kind):
        array = array.cast(pa.timestamp("us"))
    if _TYPES.is_timestamp(kind) and is_zoned(kind) and not is_zoned(array.type):
        return pc.assume_timezone(array.cast(pa.timestamp("us")), "UTC")
    if _TYPES.is_decimal(kind) and _TYPES.is_integer(source):
        array = array.cast(pa.decimal256(76, kind.scale))
    if _TYPES.is_floating(kind) and _TYPES.is_decimal(source):  # by text, since Arrow's own cast of many digits is off
        array = array.cast(pa.string()).cast(pa.float64())
    cast = array.cast(kind)
    if _TYPES.is_float32(kind) and not pc.is_finite(cast).equals(pc.is_finite(array)):
        raise pa.ArrowInvalid("a number is out of range")
    return cast
