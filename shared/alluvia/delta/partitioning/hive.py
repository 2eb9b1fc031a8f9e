"""Hive directory layout: `column=value` folders, their escapes, and names that are skipped. Pure.

Source: Hive's and Spark's partition discovery; Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote

import pyarrow as pa

from alluvia.delta.partitioning.partition import NULL_FOLDER
from alluvia.delta.partitioning.values import parse_partition_text
from alluvia.errors import Invalid

_TIME = pa.timestamp("us", tz="UTC")
_FORMS = (
    (pa.int64(), re.compile(r"-?\d+", re.ASCII)),
    (pa.date32(), re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)),
    (_TIME, re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?Z?", re.ASCII)),
)
HOLDS_NO_DATA = r"(^|/)[._][^=/]*(/|$)"
"""What is found in the path of an object of a table that is no data file of its: a regular expression of Arrow's too.

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
    found: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            if unquote(name) in found:
                raise Invalid(f"{path}: its folders name the partition column {unquote(name)} twice")
            found[unquote(name)] = None if value in ("", NULL_FOLDER) else unquote(value)
    return found


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
