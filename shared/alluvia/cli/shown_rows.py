"""Print rows of a query or the change feed: a readable table, or with `--json` the same as SQL over HTTP."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from alluvia.cli.common import Common
from alluvia.cli.terminal.output import NULL, note, show_table
from alluvia.cli.terminal.terminal import say_json
from alluvia.progress import report
from alluvia.query.formats import CHUNK_ROWS, NDJSON, render
from alluvia.query.plain import plain_values

ROWS_SHOWN = 1000
_FAR_YEAR = re.compile(r"([+-])(\d{6})-")
_AS_THEY_ARE = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary),
)


def show_rows(common: Common, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Print rows: one JSON object a line, or the first of them as a table. Columns may have one name."""
    if common.as_json:
        for batch in batches:
            for start in range(0, len(batch), CHUNK_ROWS):
                lines = render(schema, [batch.slice(start, CHUNK_ROWS)], NDJSON, sys.maxsize).body
                say_json(lines)
        return
    rows: list[tuple[Any, ...]] = []
    count = 0
    with common.progress("reading the rows"):
        for batch in batches:
            count += len(batch)
            shown = batch.slice(0, ROWS_SHOWN - len(rows))
            rows += zip(*map(shown_values, shown.columns), strict=True)
            report("reading the rows", count, 0, "rows")
    show_table(schema.names, rows, null=NULL)
    if count > len(rows):
        note(f"… {count} rows in all; --json prints every one")


def shown_values(array: pa.Array) -> list[Any]:
    """Return an array's values as a table shows them: days and moments as DuckDB writes them, others plain."""
    if any(matches(array.type) for matches in _AS_THEY_ARE):
        return array.to_pylist()
    values = plain_values(array)
    if pa.types.is_timestamp(array.type) or pa.types.is_date32(array.type):
        return [None if value is None else _as_duckdb(value) for value in values]
    return values


def _as_duckdb(text: str) -> str:
    """Return an ISO 8601 day or moment as DuckDB writes it, but without a zone, which is always UTC."""
    day, _, clock = text.removesuffix("Z").partition("T")
    match = _FAR_YEAR.match(day)
    before_christ = match is not None and match[1] == "-"
    if match is not None:
        year = int(match[2])
        day = f"{year + 1 if before_christ else year:04d}{day[match.end() - 1 :]}"
    elif day.startswith("0000-"):  # the year before 1
        day, before_christ = f"0001{day[4:]}", True
    return " ".join(part for part in (day + (" (BC)" if before_christ else ""), clock) if part)
