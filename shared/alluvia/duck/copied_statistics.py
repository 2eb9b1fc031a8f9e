"""Statistics of a file that DuckDB's COPY wrote, from its `RETURN_STATS` output. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from alluvia.table.schema.column_path import leaves, put
from alluvia.table.statistics.written import encode_statistics, json_bounds


def copied_statistics(
    rows: int, columns: Mapping[str, Mapping[str, str]], schema: pa.Schema, indexed_columns: int
) -> str:
    """Return Delta's statistics as JSON text.

    `columns` maps a quoted path such as `"a"."b"` to DuckDB's values as text: min, max, null_count, has_nan. Lists and
    maps get no null count here, since DuckDB counts their elements.
    """
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for path, kind in list(leaves(schema))[:indexed_columns]:
        found = columns.get(".".join('"' + name.replace('"', '""') + '"' for name in path))
        if found is None or pa.types.is_nested(kind):
            continue
        put(nulls, path, int(found["null_count"]))
        bounds = _bounds(found, kind)
        if bounds is not None:
            put(minima, path, bounds[0])
            put(maxima, path, bounds[1])
    return encode_statistics(rows, minima, maxima, nulls)


def _bounds(found: Mapping[str, str], kind: pa.DataType) -> tuple[Any, Any] | None:
    if "min" not in found or "max" not in found or found.get("has_nan") == "true":
        return None
    low, high = _value(found["min"], kind), _value(found["max"], kind)
    return None if low is None or high is None else json_bounds(low, high)


def _number(text: str, kind: pa.DataType) -> float | None:
    """Return a finite number: DuckDB writes a FLOAT in as few digits as tell it from other FLOATs, not from DOUBLEs."""
    if text.lstrip("-") in ("inf", "nan", "infinity"):
        return None
    number = pa.scalar(float(text), pa.float32() if pa.types.is_float32(kind) else pa.float64())
    return float(number.as_py())


def _value(text: str, kind: pa.DataType) -> Any:
    """Return the value of DuckDB's text; None if its type takes no bounds or Python has no such value."""
    try:
        if pa.types.is_integer(kind):
            return int(text)
        if pa.types.is_decimal(kind):
            return Decimal(text)
        if pa.types.is_floating(kind):
            return _number(text, kind)
        if pa.types.is_timestamp(kind):
            return datetime.fromisoformat(text)
        if pa.types.is_date(kind):
            return date.fromisoformat(text)
    except ValueError:
        return None
    return text if pa.types.is_string(kind) else None
