"""The bytes of a variant as JSON text. Pure. Source: Parquet's "Variant Binary Encoding".

The text is that of Spark's `to_json` in UTC, but for the exponents of numbers: fields in the order of their names;
decimals without zeros at the end; dates, times and UUIDs as text; bytes in base64; NaN and the infinities as text.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from itertools import pairwise
from uuid import UUID

import orjson
import pyarrow as pa

from alluvia.errors import Unsupported

Names = Sequence[str]
UTC = "+00:00"
_PRIMITIVE, _SHORT_TEXT, _OBJECT = range(3)
_BINARY, _TEXT = 15, 16
_CONSTANTS = {0: "null", 1: "true", 2: "false"}
_VERSION = 1
_FLOAT_DIGITS = range(6, 10)


def object_fields(value: bytes, names: Names) -> dict[str, str]:
    """Return the JSON of an object's fields by name. Raises as `value_text` does."""
    if not value or value[0] & 3 != _OBJECT:
        raise ValueError("a variant has columns of an object, but its value is not one")
    starts, keys, size = _container(value, 0, names)
    left, texts = len(value) - size, {}
    for key, start in zip(keys, starts, strict=True):
        texts[key], left = _decoded(value, names, start, left)
    return texts


def value_text(value: bytes, names: Names) -> str:
    """Return the JSON of a value.

    Raises `ValueError` for damaged bytes, `Unsupported` for a type that is not known.
    """
    return _decoded(value, names, 0, len(value))[0]


def _decoded(value: bytes, names: Names, start: int, left: int) -> tuple[str, int]:
    """Return the JSON of the value that starts at a byte, and how many of the `left` bytes it leaves.

    There is no recursion, since nesting may be deeper than Python's stack. Each byte counts once: values that share
    some could grow without end.
    """
    pieces: list[str] = []
    pending: list[str | int] = [start]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        kind = _number(value, item, 1) & 3
        if kind in (_PRIMITIVE, _SHORT_TEXT):
            text, size = _scalar(value, item)
            pieces.append(text)
        else:
            starts, keys, size = _container(value, item, names)
            pending += reversed(_pieces(starts, keys if kind == _OBJECT else None))
        left -= size
        if left < 0:
            raise ValueError("values of a variant overlap")
    return "".join(pieces), left


def _pieces(starts: Sequence[int], keys: Names | None) -> list[str | int]:
    """Return texts and the starts of values between them."""
    if keys is None:
        inner = [piece for start in starts for piece in (",", start)]
        return ["[", *inner[1:], "]"]
    pairs = sorted(zip(keys, starts, strict=True))
    inner = [piece for key, start in pairs for piece in (",", f"{quoted(key)}:", start)]
    return ["{", *inner[1:], "}"]


def _container(value: bytes, at: int, names: Names) -> tuple[list[int], list[str], int]:
    """Return where the values of an object or array start, an object's names, and the size of what precedes them."""
    header = _number(value, at, 1) >> 2
    is_object = value[at] & 3 == _OBJECT
    offset_size, id_size = (header & 3) + 1, (header >> 2 & 3) + 1 if is_object else 0
    count_size = 4 if header >> (4 if is_object else 2) & 1 else 1
    count = _number(value, at + 1, count_size)
    ids_at = at + 1 + count_size
    offsets_at = ids_at + count * id_size
    values_at = offsets_at + (count + 1) * offset_size
    _check_end(value, values_at)
    starts = [values_at + _number(value, offsets_at + each * offset_size, offset_size) for each in range(count)]
    keys = [_key(names, _number(value, ids_at + each * id_size, id_size)) for each in range(count if is_object else 0)]
    return starts, keys, values_at - at


def _key(names: Names, number: int) -> str:
    if number >= len(names):
        raise ValueError(f"a variant names its field {number}, of {len(names)}")
    return names[number]


def field_names(metadata: bytes) -> Names:
    """Return the names that a variant's metadata holds. Raises `ValueError`, and `Unsupported` for another version."""
    header = _number(metadata, 0, 1)
    if header & 15 != _VERSION:
        raise Unsupported(f"a variant is of version {header & 15}; this library reads {_VERSION}")
    size = (header >> 6) + 1
    count = _number(metadata, 1, size)
    texts_at = 1 + (count + 2) * size
    _check_end(metadata, texts_at)
    ends = [texts_at + _number(metadata, 1 + (at + 1) * size, size) for at in range(count + 1)]
    _check_end(metadata, max(ends))
    return [metadata[start:end].decode() for start, end in pairwise(ends)]


def _scalar(value: bytes, at: int) -> tuple[str, int]:
    """Return a value that is not nested, and how many bytes it takes."""
    kind, header = value[at] & 3, value[at] >> 2
    if kind == _SHORT_TEXT:
        return quoted(_taken(value, at + 1, header).decode()), 1 + header
    if header in _CONSTANTS:
        return _CONSTANTS[header], 1
    if header in (_BINARY, _TEXT):
        size = _number(value, at + 1, 4)
        data = _taken(value, at + 5, size)
        return (quoted(data.decode()) if header == _TEXT else base64_text(data)), 5 + size
    if header not in _SCALARS:
        raise Unsupported(f"a variant holds a value of the type {header}, which this library does not know")
    size, text = _SCALARS[header]
    return text(_taken(value, at + 1, size)), 1 + size


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_taken(data, at, size), "little")


def _taken(data: bytes, at: int, size: int) -> bytes:
    _check_end(data, at + size)
    return data[at : at + size]


def _check_end(data: bytes, end: int) -> None:
    if end > len(data):
        raise ValueError(f"a variant ends after {len(data)} bytes, in the middle of a value")


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def quoted(text: str) -> str:
    """Return a text as JSON."""
    return orjson.dumps(text).decode()


def base64_text(data: bytes) -> str:
    """Return bytes as JSON."""
    return f'"{b64encode(data).decode()}"'


def double_text(number: float) -> str:
    """Return a number of 64 bits as JSON."""
    return repr(number) if math.isfinite(number) else _not_finite(number)


def float_text(number: float) -> str:
    """Return a 32-bit float as JSON, in the fewest digits that identify it."""
    if not math.isfinite(number):
        return _not_finite(number)
    texts = (f"{number:.{digits}g}" for digits in _FLOAT_DIGITS)
    short = next(text for text in texts if struct.unpack("<f", struct.pack("<f", float(text)))[0] == number)
    return repr(float(short))


def _not_finite(number: float) -> str:
    return '"NaN"' if math.isnan(number) else f'"{"-" * (number < 0)}Infinity"'


def decimal_text(unscaled: int, scale: int) -> str:
    """Return a decimal as JSON."""
    digits = f"{abs(unscaled):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    return f"{'-' * (unscaled < 0)}{whole}{'.' * bool(fraction)}{fraction}"


def moment_texts(array: pa.Array, zone: str) -> list[str]:
    """Return dates or times as JSON, without zeros at the end of a second's fraction; for null any text."""
    texts = [text or "" for text in array.cast(pa.string()).to_pylist()]
    return [f'"{text.rstrip("0").rstrip(".") if "." in text else text}{zone}"' for text in texts]


def _moment(kind: pa.DataType, zone: str = "") -> Callable[[bytes], str]:
    integers = pa.int32() if kind.bit_width == 32 else pa.int64()
    return lambda data: moment_texts(pa.array([_signed(data)], integers).view(kind), zone)[0]


_SCALARS: dict[int, tuple[int, Callable[[bytes], str]]] = {
    **{header: (1 << at, lambda data: str(_signed(data))) for at, header in enumerate((3, 4, 5, 6))},
    7: (8, lambda data: double_text(*struct.unpack("<d", data))),
    **{
        header: (5 + extra, lambda data: decimal_text(_signed(data[1:]), data[0])) for header, extra in ((8, 0), (9, 4))
    },
    10: (17, lambda data: decimal_text(_signed(data[1:]), data[0])),
    11: (4, _moment(pa.date32())),
    12: (8, _moment(pa.timestamp("us"), UTC)),
    13: (8, _moment(pa.timestamp("us"))),
    14: (4, lambda data: float_text(*struct.unpack("<f", data))),
    17: (8, _moment(pa.time64("us"))),
    18: (8, _moment(pa.timestamp("ns"), UTC)),
    19: (8, _moment(pa.timestamp("ns"))),
    20: (16, lambda data: f'"{UUID(bytes=data)}"'),
}
"""By the number of a type: the size of a value in bytes, and what makes its text."""
