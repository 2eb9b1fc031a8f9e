"""Texts as values of a column: as DuckDB casts them, but none rounded or cut, as its CAST does without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import isinf

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.duck.evaluators import current_evaluator
from alluvia.duck.failures import Context, EngineError, translate
from alluvia.duck.relation import duckdb_type
from alluvia.errors import Invalid
from alluvia.table.schema.moments import is_zoned
from alluvia.table.schema.type_names import type_name

_Loses = Callable[[str, pa.Scalar], bool]
_TIME_OF_DAY = re.compile(r"\d[T ]+.*[1-9]")
_FINER_THAN_US = re.compile(r"\.\d{6}\d*[1-9]")
_ZONE = re.compile(r":\d\d(?:\.\d*)?\s*([-+A-Za-z].*?)\s*$")
_NO_OFFSET = re.compile(r"Z|UTC|GMT|BC|[-+][0:]+", re.IGNORECASE)


def cast_values(values: pa.Array, field: pa.Field) -> pa.Array:
    """Return values as DuckDB casts them to a column's type. Raises `Invalid`, naming the column."""
    query = f"SELECT CAST(value AS {duckdb_type(field.type)}) FROM rows"  # noqa: S608 - the name of a type
    try:
        found = current_evaluator().compute(query, pa.table([values], ["value"]))
    except EngineError as error:
        raise Invalid(f"column {field.name}: {translate(error.details, Context(''))}") from None
    return found.column(0).combine_chunks()


def text_values(texts: pa.Array, field: pa.Field) -> pa.Array:
    """Return texts as values of a column. Raises `Invalid`, naming it, for one that is none, or loses something."""
    if pa.types.is_string(field.type):
        return texts
    found = cast_values(texts, field)
    suspect, loses = _losses(field.type)
    if suspect is None:
        return found
    for at in pc.indices_nonzero(pc.match_substring_regex(texts, suspect)).to_pylist():
        if loses(texts[at].as_py(), found[at]):
            raise Invalid(
                f"column {field.name}: {texts[at].as_py()!r:.100} does not fit {type_name(field.type)} unless it is "
                f"rounded or cut: write CAST(… AS {duckdb_type(field.type)}) if that is meant"
            )
    return found


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
