"""Queries of a sorted table whose row groups follow its rows and values, compared with groups of 122,880 rows.

Look-ups of one value and queries of all rows, by DuckDB's CPU time in one thread, and the bytes of the row groups that
a look-up reads of two columns.
"""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from alluvia.delta.properties import ROW_GROUP_ROWS_MAX
from benchmarks.measure import megabytes, milliseconds
from benchmarks.report import Figure
from tests.s3server import S3Server

ROWS = 1_000_000
REPEATS = 7
LOOKUP = "SELECT id, name FROM '{}' WHERE id = 600000"
QUERIES = {
    "look-up of one id": (LOOKUP, 0.7),
    "two columns of all rows": ("SELECT sum(value), max(kind) FROM '{}'", 1.1),
    "all columns of all rows": ("SELECT sum(id), max(kind), max(name), sum(value) FROM '{}'", 1.1),
}
"""Each query with the limit of its CPU time, as a multiple of the time with large groups."""


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure both forms of one table, in turns."""
    sides = {"ours": {}, "large": {"alluvia.row_group_rows": str(ROW_GROUP_ROWS_MAX - 1)}}
    rows = _rows()
    paths = {}
    for side, properties in sides.items():
        table = alluvia.connect(str(folder)).create_table(side, rows.schema, sort_by=["id"], properties=properties)
        table.append(rows)
        [file] = table.snapshot().files
        paths[side] = folder / side / file.path
    sizes = {side: (path.stat().st_size, _group_bytes(path)) for side, path in paths.items()}
    found = []
    for what, at, most in (("size of the file", 0, 1.05), ("bytes of a row group in two columns", 1, 0.4)):
        mine, other = (sizes[side][at] for side in sides)
        found.append(_figure(what, megabytes(mine), megabytes(other), mine / other, most))
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for what, (query, most) in QUERIES.items():
            turns = [[_cpu(connection, query.format(path)) for path in paths.values()] for _ in range(REPEATS)]
            mine_seconds, other_seconds = (min(side) for side in zip(*turns, strict=True))
            ratio = mine_seconds / other_seconds
            found.append(_figure(what, milliseconds(mine_seconds), milliseconds(other_seconds), ratio, most))
    return found


def _figure(what: str, mine: str, other: str, ratio: float, most: float) -> Figure:
    return Figure(what, mine, f"{other} (122,879 rows a group)", ratio, f"at most {most}", ratio <= most)


def _rows() -> pa.Table:
    numbers = pa.array(range(ROWS), pa.int64())
    names = [f"name {number * 7919 % 1_000_003}" for number in range(ROWS)]
    kinds = [f"kind {number * 31 % 41}" for number in range(ROWS)]
    values = [number * 0.37 for number in range(ROWS)]
    return pa.table({"id": numbers, "kind": kinds, "name": names, "value": values})


def _group_bytes(path: Path) -> int:
    """Return the bytes of the columns `id` and `name` in a row group in the middle of a file."""
    metadata = pq.read_metadata(path)
    group = metadata.row_group(metadata.num_row_groups // 2)
    return sum(group.column(at).total_compressed_size for at in (0, 2))


def _cpu(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    before = time.process_time()
    connection.execute(query).fetchall()
    return time.process_time() - before
