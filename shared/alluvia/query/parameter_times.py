"""Times as values of parameters: dates, ISO 8601 with or without an offset, and numbers since the Unix epoch. Pure.

Text that is compared with a column of dates or timestamps, or cast to one, is read as one here. DuckDB reads ISO 8601
alone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.parse import Node, walk
from alluvia.errors import Invalid

FORMS = "send 2026-11-20, 2026-11-20T10:30:00Z, or seconds, milliseconds or microseconds since 1970"
_NUMBER = re.compile(r"-?[0-9]{1,17}(?:\.[0-9]{1,9})?", re.ASCII)
_BASIC_DATE = re.compile(r"[12][0-9]{3}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])", re.ASCII)
_LOST_PLUS = re.compile(r"(?P<time>[Tt ][0-9:.]+) (?P<offset>[0-9]{2}:?[0-9]{2})\Z", re.ASCII)
"""A `+` in a query string that was not percent-encoded is read as a space."""
_SCALES_US = ((10**11, 1_000_000), (10**14, 1_000), (10**17, 1))  # below this magnitude, the length of one unit in µs
_LEAST = 10**8
"""Below it, a number is rather a year, or a count, than seconds since 1970; 0 is the epoch."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TYPES = {"DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC")}
_OF_TIMES = frozenset({"date_trunc", "time_bucket"})
_FAILED = re.compile(r"(?:timestamp|date|time) field [^\"]*\"(?P<text>[^\"]*)\"")


def read_time(text: str, kind: pa.DataType) -> dt.datetime | dt.date | None:
    """Return the date or timestamp that a text says; None if it says none. Without an offset it is in UTC.

    A timestamp says the date that it has in UTC, a date its first moment. A number counts from the epoch in seconds
    below 1e11, milliseconds below 1e14, microseconds below 1e17; eight digits such as 20261120 are a date.
    """
    text = text.strip()
    moment = _of_number(text) if _NUMBER.fullmatch(text) else _of_iso(_LOST_PLUS.sub(r"\g<time>+\g<offset>", text))
    if moment is None:
        return None
    if pa.types.is_date(kind):
        return moment.date()
    is_plain = isinstance(kind, pa.TimestampType) and kind.tz is None
    return moment.replace(tzinfo=None) if is_plain else moment


def _of_number(text: str) -> dt.datetime | None:
    if _BASIC_DATE.fullmatch(text):
        return _of_iso(text)
    number = Decimal(text)
    scale_us = next((scale for limit, scale in _SCALES_US if abs(number) < limit), None)
    if scale_us is None or (number and abs(number) < _LEAST):
        return None
    try:
        return _EPOCH + dt.timedelta(microseconds=int(number * scale_us))
    except OverflowError:
        return None


def _of_iso(text: str) -> dt.datetime | None:
    if text.isdigit() and not _BASIC_DATE.fullmatch(text):  # which Python reads, with any digit between date and time
        return None
    try:
        moment = dt.datetime.fromisoformat(text.upper())
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None


def with_times(root: Node, schemas: list[pa.Schema], values: pa.Table) -> pa.Table:
    """Return the values of a query's parameters, in one row, with times for those that it compares with times.

    Values that are not times, or that the query does not use as times, are not changed.
    """
    candidates = {field.name for field in values.schema if pa.types.is_string(field.type) or _is_count(field.type)}
    if not candidates:
        return values
    columns = _time_columns(schemas)
    for name in _named_in(root) & columns.keys():  # which may be anything: epoch_ms(ts) AS ts
        del columns[name]
    for name, kind in _wanted(root, columns):
        at = values.schema.get_field_index(name)
        if name not in candidates or not values[name][0].is_valid:
            continue
        moment = read_time(str(values[name][0].as_py()), kind)
        if moment is not None:
            values = values.set_column(at, name, pa.array([moment], kind))
            candidates.discard(name)
    return values


def _is_count(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind))


def _time_columns(schemas: list[pa.Schema]) -> dict[str, pa.DataType]:
    """Return the type of each column that has dates or timestamps in all of the tables that have it."""
    found: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            found.setdefault(fold(field.name), set()).add(field.type)
    return {
        name: next(iter(kinds))
        for name, kinds in found.items()
        if len(kinds) == 1 and (pa.types.is_timestamp(next(iter(kinds))) or pa.types.is_date(next(iter(kinds))))
    }


def _named_in(root: Node) -> set[str]:
    """Return the names that a query gives, to columns and tables alike."""
    named: set[str] = set()
    for node in walk(root):
        names = [node.get("alias"), *(node.get("column_name_alias") or ()), *(node.get("aliases") or ())]  # of a CTE
        named.update(fold(name) for name in names if name)
    return named


def _wanted(root: Node, columns: Mapping[str, pa.DataType]) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the parameters of a query that are compared with times, or cast to them, each with the type."""
    for node in walk(root):
        kind = node.get("class")
        if kind == "COMPARISON":
            sides = [node["left"], node["right"]]
        elif kind == "BETWEEN":
            sides = [node["input"], node["lower"], node["upper"]]
        elif kind == "OPERATOR" and node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"):
            sides = node["children"]
        elif kind == "CAST":
            sides, wanted = [node["child"]], _TYPES.get(node["cast_type"].get("id"))
        else:
            continue
        if kind != "CAST":
            wanted = next((found for side in sides if (found := _type(side, columns)) is not None), None)
        if wanted is not None:
            yield from ((side["identifier"], wanted) for side in sides if side.get("class") == "PARAMETER")


def _type(node: Node, columns: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of a column, a cast, or a time that is cut off, if it is one of times."""
    kind = node.get("class")
    if kind == "COLUMN_REF":
        return columns.get(fold(node["column_names"][-1]))
    if kind == "CAST":
        return _TYPES.get(node["cast_type"].get("id"))
    if kind == "FUNCTION" and node["function_name"] in _OF_TIMES:
        return next((found for child in node["children"] if (found := _type(child, columns)) is not None), None)
    return None


def naming_parameter(error: Invalid, values: pa.Table | None) -> Invalid:
    """Return the error of a query, with the name of the parameter whose text the engine cannot read as a time."""
    failed = _FAILED.search(str(error)) if type(error) is Invalid and values is not None else None
    if failed is None or values is None:
        return error
    for name in values.column_names:
        value = values[name][0].as_py()
        if isinstance(value, str) and value == failed["text"]:
            shown = name if name.isdigit() else f"${name}"
            return Invalid(f"parameter {shown}: {value!r:.100} is not a time: {FORMS}")
    return error
