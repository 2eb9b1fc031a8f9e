"""Read a file of rows for a table: CSV, TSV, NDJSON, JSON or Parquet, as uploads are read."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

import pyarrow as pa

from alluvia.api.lake import Table
from alluvia.errors import Invalid
from alluvia.files.limits import UNLIMITED, Misfit
from alluvia.files.rows import format_of
from alluvia.files.sent import SentFile

_UNKNOWN = "{}: expected a file that ends in .csv, .tsv, .ndjson, .jsonl, .json or .parquet"


def read_rows(table: Table, name: str) -> pa.Table:
    """Read a file's rows, with the table's types for the columns that it has; "-" is NDJSON from standard input.

    Raises `Invalid`, naming the file.
    """
    try:
        with sent_file(name, "ndjson" if name == "-" else None).rows() as rows:
            schema = rows.schema({field.name: field.type for field in table.snapshot().schema})
            wanted = pa.schema([(field.name, field.type) for field in schema])
            return pa.concat_tables([wanted.empty_table(), *rows.tables(wanted)])
    except Misfit as error:
        raise Invalid(f"{name}: {error}") from error


def sent_file(name: str, asked: str | None) -> SentFile:
    """Return a file of this machine, whose format is what was asked for, or what it says itself."""
    data = sys.stdin.buffer.read() if name == "-" else None
    path = Path(name)
    with path.open("rb") if data is None else BytesIO(data) as start:
        kind = format_of(asked, "", path.name, start.read(64), _UNKNOWN.format(name))
    return SentFile(path if data is None else data, kind, UNLIMITED)
