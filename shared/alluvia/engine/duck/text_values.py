"""Texts as values of a column: as DuckDB casts them, but none rounded or cut, as its CAST does without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import isinf

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.conversion import converted
from alluvia.delta.schema.types import is_zoned, type_name
from alluvia.engine.duck.evaluators import current_evaluator
from alluvia.engine.duck.failures import Context, EngineError, translate
from alluvia.engine.duck.relation import duckdb_type
from alluvia.errors import Invalid

_Loses = Callable[[str, pa.Scalar], bool]
_TIME_OF_DAY = re.compile(r"\d[T ]+.*[1-9]")
_FINER_THAN_US = re.compile(r"\.\d{6}\d*[1-9]")
_ZONE = re.compile(r":\d\d(?:\.\d*)?\s*([-+A-Za-z].*?)\s*$")
_NO_OFFSET = re.compile(r"Z|UTC|GMT|BC|[-+][0:]+", re.IGNORECASE)


def cast_values(values: pa.Array, field: pa.Field) -> pa.Array:
    """Return values as DuckDB casts them to a column's type. Raises `Invalid`, naming the column."""
    query = f"SELECT CAST(value AS {duckdb_type(field.type)}) FROM rows"  # noqa: S608 - the name of a type
    try:
        computed = current_evaluator().compute(query, pa.table([values], ["value"]))
    except EngineError as error:
        raise Invalid(f"column {field.name}: {translate(error.details, Context(''))}") from None
    return computed.column(0).combine_chunks()


def text_values(texts: pa.Array, field: pa.Field) -> pa.Array:
    """Return texts as values of a column. Raises `Invalid`, naming it, for a text that does not fit without loss."""
    if pa.types.is_string(field.type):
        return texts
    if pa.types.is_nested(field.type):
        return literal_values(cast_values(texts, field.with_type(_of_texts(field.type))), field)
    values = cast_values(texts, field)
    suspect, loses = _losses(field.type)
    if suspect is None:
        return values
    for at in pc.indices_nonzero(pc.match_substring_regex(texts, suspect)).to_pylist():
        if loses(texts[at].as_py(), values[at]):
            raise Invalid(
                f"column {field.name}: {texts[at].as_py()!r:.100} does not fit {type_name(field.type)} unless it is "
                f"rounded or cut: write CAST(… AS {duckdb_type(field.type)}) if that is meant"
            )
    return values


def literal_values(values: pa.Array, field: pa.Field) -> pa.Array:
    """Return literals as values of a column: texts in them become what their part of the column is.

    Raises `Invalid`, naming the part, for what would lose something.
    """
    return converted(values, field.type, field.name, _of_literal)


def _of_literal(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array | None:
    if pa.types.is_string(values.type) and not pa.types.is_string(kind):
        return text_values(values, pa.field(path, kind))
    if isinstance(values, pa.StructArray) and isinstance(kind, pa.MapType):
        return _entries(values, kind, path)
    return None


def _entries(structs: pa.StructArray, kind: pa.MapType, path: str) -> pa.Array:
    """Return structs as maps, as DuckDB casts them. Raises `Invalid` for a null in one, which may be an absent key."""
    names = pa.array([field.name for field in structs.type], pa.string())
    keys = converted(names, kind.key_type, f"{path}.key", _of_literal).to_pylist()
    items = [
        converted(structs.field(at), kind.item_type, f"{path}.value", _of_literal).to_pylist()
        for at in range(len(keys))
    ]
    rows = [
        [(key, values[row]) for key, values in zip(keys, items, strict=True)] if is_valid else None
        for row, is_valid in enumerate(structs.is_valid().to_pylist())
    ]
    if any(value is None for row in rows if row for _, value in row):
        raise Invalid(
            f"column {path}: a struct with nulls cannot become a map, because a null may stand for an absent key: "
            "write MAP {'key': value}"
        )
    return pa.array(rows, kind)


def _of_texts(kind: pa.DataType) -> pa.DataType:
    """Return a nested type with text in place of all other parts."""
    if isinstance(kind, pa.StructType):
        return pa.struct([(field.name, _of_texts(field.type)) for field in kind])
    if isinstance(kind, pa.MapType):
        return pa.map_(_of_texts(kind.key_type), _of_texts(kind.item_type))
    return pa.list_(_of_texts(kind.value_type)) if isinstance(kind, pa.ListType) else pa.string()


def _losses(kind: pa.DataType) -> tuple[str | None, _Loses]:
    """Return what texts may lose something as a type, as a regular expression of Arrow's, and what tells if one does.

    There is no such expression where nothing is lost.
    """
    types = pa.types
    if types.is_integer(kind) or types.is_decimal(kind):
        return r"[.eE]", _is_rounded
    if types.is_floating(kind):
        return r"[1-9]", _overflows
    if types.is_date(kind):
        return r"\d[T ]+\d", lambda text, _: _TIME_OF_DAY.search(text) is not None
    if types.is_timestamp(kind):
        zoned = is_zoned(kind)
        return r"\.\d{7}|:", lambda text, _: bool(_FINER_THAN_US.search(text)) or (not zoned and _has_offset(text))
    return None, lambda *_: False


def _is_rounded(text: str, value: pa.Scalar) -> bool:
    try:
        return bool(Decimal(text.strip().replace("_", "")) != value.as_py())
    except InvalidOperation:  # written in another way, such as 0x1e
        return False


def _overflows(text: str, value: pa.Scalar) -> bool:
    number = value.as_py()
    return isinf(number) or (not number and re.search("[1-9]", re.split("[eE]", text)[0]) is not None)


def _has_offset(text: str) -> bool:
    zone = _ZONE.search(text)
    return zone is not None and _NO_OFFSET.fullmatch(zone[1]) is None
