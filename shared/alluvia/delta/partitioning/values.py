"""Partition values: their text in the log, and in the names of Hive folders. Pure.

Source: Hive's and Spark's partition discovery; Delta protocol, "Partition Value Serialization".

Null is JSON null; the empty string means null too. Timestamps come as `2021-01-01 00:00:00[.ffffff]`, in UTC, and as
ISO 8601 with `Z`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.partition import NULL_FOLDER
from alluvia.delta.schema.types import moment, type_name
from alluvia.errors import Corrupt, Invalid

_TIME = pa.timestamp("us", tz="UTC")
_FORMS = (
    (pa.int64(), re.compile(r"-?\d+", re.ASCII)),
    (pa.date32(), re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)),
    (_TIME, re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?Z?", re.ASCII)),
)
HOLDS_NO_DATA = r"(^|/)[._][^=/]*(/|$)"
"""Matches paths of a table's objects that are not data files: a regular expression of Python and Arrow.

Unlike `is_hidden`, it takes `.x=…` to be the folder of a partition column, as a table's log names it.
"""
_HOLDS_NO_DATA = re.compile(HOLDS_NO_DATA)


def is_hidden(path: str) -> bool:
    """Whether a part of a path has a name that readers of tables skip: `.x`, or `_x` unless it is `_x=…`."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.split("/"))


def holds_no_data(path: str) -> bool:
    """Whether a part of a path in a table's folder has a name that no data file and no partition folder has."""
    return _HOLDS_NO_DATA.search(path) is not None


def partition_texts(path: str) -> dict[str, str | None]:
    """Return the partition columns that a file's path names, outermost first, with their values' text; None for null.

    Escapes (`%3A`) are decoded once, in names and values. Folders of another form count for nothing. Raises `Invalid`
    for a column that is named twice.
    """
    texts: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            if unquote(name) in texts:
                raise Invalid(f"{path}: its folders name the partition column {unquote(name)} twice")
            texts[unquote(name)] = None if value in ("", NULL_FOLDER) else unquote(value)
    return texts


def infer_type(texts: Collection[str]) -> pa.DataType:
    """Return the type that all of some texts have: `long`, `date`, `timestamp`, else `string`."""
    for kind, form in _FORMS:
        if texts and all(form.fullmatch(text) and _parses(text, kind) for text in texts):
            return kind
    return pa.string()


def _parses(text: str, kind: pa.DataType) -> bool:
    try:
        parse_partition_text(text, kind)
    except (ValueError, ArithmeticError):
        return False
    return True


_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_FLOATS = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?Infinity|NaN", re.ASCII)
_DATE = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_DIGITS_MAX = 100
_FLAGS = {"true": True, "false": False}


def partition_value(file: AddFile, name: str, kind: pa.DataType) -> Any:
    """Return the value of a file's rows in a partition column, by its name in the log; None for null.

    Raises `Corrupt`, naming the file, for a text that is not a value of the column's type.
    """
    text = file.partition_values.get(name)
    try:
        return parse_partition_text(text, kind)
    except (ValueError, ArithmeticError) as error:
        msg = f"data file {file.path}: the value {text!r} of partition column {name} is not a valid {type_name(kind)}"
        raise Corrupt(msg) from error


def parse_partition_text(text: str | None, kind: pa.DataType) -> Any:
    """Return the value of a text. Raises `ValueError` or `ArithmeticError` if it is not valid."""
    if text is None or text == "":
        return None
    parse = next((parse for matches, parse in _PARSERS if matches(kind)), None)
    if parse is None:
        raise ValueError(f"a column of the type {kind} cannot be a partition column")
    return parse(text, kind)


def _whole(text: str, kind: pa.DataType) -> int:
    value = int(text) if _WHOLE.fullmatch(text) and len(text) < _DIGITS_MAX else 1 << 64
    if not -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1:
        raise ValueError(f"{text!r} is not a {kind.bit_width}-bit whole number")
    return value


def _float(text: str, _: pa.DataType) -> float:
    if not _FLOATS.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    value = Decimal(text if _FLOATS.fullmatch(text) else "NaN")
    try:
        pa.scalar(value, kind)
    except pa.ArrowException as error:
        raise ValueError(f"{text!r} is not a number that fits") from error
    return value


def _flag(text: str, _: pa.DataType) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError(f"{text!r} is neither true nor false")
    return _FLAGS[text.lower()]


def _date(text: str, _: pa.DataType) -> date:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date")
    return date(int(match[1]), int(match[2]), int(match[3]))


_PARSERS: list[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], Any]]] = [
    (pa.types.is_string, lambda text, _: text),
    (pa.types.is_boolean, _flag),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, moment),
    (pa.types.is_binary, lambda text, _: text.encode()),
]
