"""Parsed JSON as the bytes of a variant: the other direction of `variant_encoding`. Pure.

Source: Parquet's "Variant Binary Encoding". Numbers of up to 38 digits are exact; others become the nearest double.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate

from alluvia.errors import Invalid, cut
from alluvia.json_values.jsontext import ExactNumber

Names = Mapping[str, int]
"""The number of each name in a variant's metadata."""

NULL = b"\0"
"""The bytes of JSON's null."""
_TRUE, _FALSE, _DOUBLE, _DECIMAL, _TEXT = 1, 2, 7, 10, 16
_OBJECT, _ARRAY = 2, 3
_SHORT_MAX = 63
_WHOLE = ((3, 1), (4, 2), (5, 4), (6, 8))
"""The types of whole numbers, each with its bytes."""
_DIGITS_MAX = 38
_VERSION, _SORTED = 1, 1 << 4


def names_in(value: object) -> frozenset[str]:
    """Return the names of fields in a value, at any depth."""
    if type(value) is dict and not any(type(each) in (dict, list) for each in value.values()):
        return frozenset(value)
    names: set[str] = set()
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            names.update(each)
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
    return frozenset(names)


def names_metadata(names: Collection[str]) -> tuple[bytes, Names]:
    """Return the metadata of variants with some names, and the numbers of the names."""
    ordered = sorted(names)
    texts = [name.encode() for name in ordered]
    offsets = [0, *accumulate(map(len, texts))]
    size = _size_of(max(offsets[-1], len(ordered)))
    header = _VERSION | _SORTED | (size - 1) << 6
    parts = [bytes([header]), _number(len(ordered), size), *(_number(each, size) for each in offsets), *texts]
    return b"".join(parts), {name: at for at, name in enumerate(ordered)}


def encoded(value: object, names: Names) -> bytes:
    """Return a value's bytes. Raises `Invalid` for one that no variant holds."""
    try:
        return _encoded(value, names)
    except RecursionError as error:
        raise Invalid("properties: a value is nested too deeply") from error


def _encoded(value: object, names: Names) -> bytes:
    kind = type(value)
    if kind is str:
        return _text(str(value).encode())
    if value is None:
        return NULL
    if kind is bool:
        return bytes([(_TRUE if value else _FALSE) << 2])
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        return bytes([_DOUBLE << 2]) + struct.pack("<d", value)
    if isinstance(value, ExactNumber):
        return _exact(value.text)
    parts = []  # without functions in between: values may be nested hundreds of levels deep
    if isinstance(value, dict):
        fields = sorted(value.items())
        for _, each in fields:
            parts.append(_encoded(each, names))
        return _container(_OBJECT, parts, [names[name] for name, _ in fields])
    if isinstance(value, list):
        for each in value:
            parts.append(_encoded(each, names))  # noqa: PERF401
        return _container(_ARRAY, parts)
    raise TypeError(f"{kind.__name__} is not a JSON value")


def _text(data: bytes) -> bytes:
    if len(data) <= _SHORT_MAX:
        return bytes([1 | len(data) << 2]) + data
    return bytes([_TEXT << 2]) + _number(len(data), 4) + data


def _whole(value: int) -> bytes:
    for kind, size in _WHOLE:
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
            return bytes([kind << 2]) + value.to_bytes(size, "little", signed=True)
    return _exact(str(value))


def _exact(text: str) -> bytes:
    """Return a number as a decimal; as a double if it has too many digits for one."""
    sign, digits, exponent = Decimal(text).as_tuple()
    unscaled, scale = int("".join(map(str, digits))), -int(exponent)
    if scale < 0 and len(digits) - scale <= _DIGITS_MAX:
        unscaled, scale = unscaled * 10**-scale, 0
    if 0 <= scale <= _DIGITS_MAX and unscaled < 10**_DIGITS_MAX:
        data = (-unscaled if sign else unscaled).to_bytes(16, "little", signed=True)
        return bytes([_DECIMAL << 2, scale]) + data
    if not math.isfinite(number := float(text)):
        raise Invalid(f"properties: {cut(text)} is larger than any number that the table stores: send it as text")
    return bytes([_DOUBLE << 2]) + struct.pack("<d", number)


def _container(kind: int, values: Sequence[bytes], ids: Sequence[int] | None = None) -> bytes:
    """Return an array's bytes, or with the numbers of its names an object's."""
    offsets = [0, *accumulate(map(len, values))]
    size, id_size = _size_of(offsets[-1]), _size_of(max(ids, default=0)) if ids is not None else 1
    large = len(values) > 255
    header = (size - 1) | (id_size - 1) << 2 | large << (2 if ids is None else 4)
    parts = [bytes([kind | header << 2]), _number(len(values), 4 if large else 1)]
    parts += [_number(each, id_size) for each in ids or ()]
    parts += [_number(each, size) for each in offsets]
    return b"".join([*parts, *values])


def _size_of(most: int) -> int:
    """Return how many bytes a number takes; 1 to 4."""
    return max(1, (most.bit_length() + 7) // 8)


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")
