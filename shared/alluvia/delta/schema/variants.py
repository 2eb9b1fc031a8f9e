"""Variants (values of any shape) as JSON text. Pure.

Source: Parquet's "Variant Binary Encoding" and "Variant Shredding". A file holds a variant as bytes (`value`, with the
names of its fields in `metadata`), as typed columns (`typed_value`, "shredded"), or partly as each.

In a table's physical schema a variant has the type `STORED`, in its schema it is text. A variant null is `null`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any
from uuid import UUID

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.types import is_bytes, is_text
from alluvia.delta.schema.variant_encoding import (
    UTC,
    Names,
    base64_text,
    decimal_text,
    double_text,
    field_names,
    float_text,
    moment_texts,
    object_fields,
    quoted,
    value_text,
)

VARIANT = "variant"
STORED = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])
"""The type of a variant in a table's physical schema. Files may have typed columns besides."""

Row = tuple[bytes | None, Any]
"""A variant as it is stored: its `value`, and its `typed_value` as JSON text, as rows by name, or as a list of rows."""


def is_variant(field: pa.Field, physical: pa.Field) -> bool:
    """Whether a top column, as it is in a table's schema and in files, is a variant."""
    return bool(physical.type == STORED and field.type != STORED)


def variant_texts(array: pa.Array) -> pa.StringArray:
    """Return a column of variants as JSON text, null where there is none.

    Raises `ValueError` for bytes other than a variant; `Unsupported` for a version or a type that came later.
    """
    if not pa.types.is_struct(array.type) or array.type.get_field_index("metadata") < 0:
        raise ValueError(f"the file has {array.type}, which is not a variant")
    names_of = cache(field_names)
    valid, metadata = array.is_valid().to_pylist(), pc.struct_field(array, "metadata").to_pylist()
    texts = [
        (_text(row, () if known is None else names_of(known)) or "null") if is_valid else None
        for row, known, is_valid in zip(_rows(array), metadata, valid, strict=True)
    ]
    return pa.array(texts, pa.string())


def _rows(group: pa.Array) -> list[Row]:
    value, typed = _child(group, "value"), _child(group, "typed_value")
    nothing = [None] * len(group)
    values = nothing if value is None else value.to_pylist()
    return list(zip(values, nothing if typed is None else _typed(typed), strict=True))


def _child(group: pa.Array, name: str) -> pa.Array | None:
    if not pa.types.is_struct(group.type):
        raise ValueError(f"the file has {group.type} where a part of a variant should be")
    at = group.type.get_field_index(name)
    return None if at < 0 else pc.struct_field(group, [at])


def _typed(array: pa.Array) -> list[Any]:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    valid = array.is_valid().to_pylist()
    values: list[Any]
    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type.fields]
        columns = [_rows(pc.struct_field(array, [at])) for at in range(len(names))]
        values = [dict(zip(names, fields, strict=True)) for fields in zip(*columns, strict=True)]
    elif isinstance(array, (pa.ListArray, pa.LargeListArray)):
        rows, ends = _rows(array.values), array.offsets.to_pylist()
        values = [rows[start:end] for start, end in pairwise(ends)]
    else:
        values = _literals(array)
    return [each if is_valid else None for each, is_valid in zip(values, valid, strict=True)]


def _text(row: Row, names: Names) -> str | None:
    value, typed = row
    if typed is None:
        return None if value is None else value_text(value, names)
    if isinstance(typed, dict):
        fields = {} if value is None else object_fields(value, names)
        texts = {name: _text(field, names) for name, field in typed.items()}
        fields |= {name: text for name, text in texts.items() if text is not None}
        return "{" + ",".join(f"{quoted(name)}:{fields[name]}" for name in sorted(fields)) + "}"
    if isinstance(typed, list):
        return "[" + ",".join(_text(element, names) or "null" for element in typed) + "]"
    return str(typed)


def _literals(array: pa.Array) -> list[str | None]:
    types, kind = pa.types, array.type
    if types.is_timestamp(kind):
        zone = "" if kind.tz is None else UTC
        return list(moment_texts(array.view(pa.int64()).view(pa.timestamp(kind.unit)), zone))
    if types.is_date(kind) or types.is_time(kind):
        return list(moment_texts(array, ""))
    literal = next((text for matches, text in _LITERALS if matches(kind)), None)
    if literal is None:
        raise ValueError(f"the file has {kind} as a part of a variant")
    return [None if value is None else literal(value) for value in array.to_pylist()]


def _exact(value: Any) -> str:
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    return decimal_text(-unscaled if sign else unscaled, -exponent)


_LITERALS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]]] = [
    (pa.types.is_boolean, lambda value: "true" if value else "false"),
    (pa.types.is_integer, str),
    (pa.types.is_float32, float_text),
    (pa.types.is_float64, double_text),
    (pa.types.is_decimal, _exact),
    (is_text, quoted),
    (is_bytes, base64_text),
    (lambda kind: pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16, lambda v: f'"{UUID(bytes=v)}"'),
]
