"""Read a file of rows for a table: NDJSON, CSV or Parquet."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.lake import Table

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json"}


def read_rows(table: Table, name: str) -> pa.Table:
    """Read a file's rows, with the table's types for the columns that it has. Raises `Invalid`, naming the file."""
    kind = "json" if name == "-" else FORMATS.get(Path(name).suffix.lower())
    if kind is None:
        raise Invalid(f"{name}: expected a file that ends in {', '.join(FORMATS)}")
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    schema = table.snapshot().schema
    try:
        rows = _read(data, kind, pa.schema([field.with_nullable(True) for field in schema]))
    except (pa.ArrowException, orjson.JSONDecodeError) as error:
        raise Invalid(f"{name} cannot be read as {kind}: {error}") from error
    names = rows.column_names
    repeated = next((each for at, each in enumerate(names) if each in names[:at]), None)
    if repeated is not None:
        raise Invalid(f"{name} has the column {repeated} more than once: leave one of them")
    return rows


def _read(data: bytes, kind: str, schema: pa.Schema) -> pa.Table:
    if kind == "parquet":
        import pyarrow.parquet as pq

        return pq.read_table(pa.BufferReader(data))
    if kind == "csv":
        from pyarrow import csv

        convert = csv.ConvertOptions(column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False)
        return csv.read_csv(pa.BufferReader(data), convert_options=convert)
    from pyarrow import json

    # A column that no line has must not come as nulls, which would set it.
    named = {name for line in data.splitlines() if line.strip() for name in _names(line)}
    known = pa.schema([field for field in schema if field.name in named])
    parse = json.ParseOptions(explicit_schema=known, unexpected_field_behavior="infer")
    return json.read_json(pa.BufferReader(data), parse_options=parse) if named else known.empty_table()


def _names(line: bytes) -> list[str]:
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise pa.ArrowInvalid(f"a line is not a JSON object: {line[:40]!r}")
    return list(found)
