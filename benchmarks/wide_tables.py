"""Queries of tables of 5 to 2,000 columns and 1 to 200 files, compared with plain DuckDB over the same files.

A query of two columns, asked again of a warm process. Each query of a lake costs a fixed part, which the smallest table
shows: its time beyond plain DuckDB's. The rest is compared. Times are CPU time of all processes and threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa

import alluvia
from benchmarks.measure import milliseconds
from benchmarks.report import Figure
from tests.s3server import S3Server

SHAPES = ((5, 1), (5, 20), (5, 200), (100, 20), (500, 1), (500, 20), (500, 200), (2000, 1), (2000, 20))
"""Numbers of columns and of files. The first shape shows the fixed part."""
ROWS = 1000
QUERIES = 20
"""This many queries are timed together, because the system counts the time of processes in hundredths of a second."""
REPEATS = 3
QUERY = "SELECT count(*), sum(c{}), max(c{}) FROM {}"
NARROW, WIDE = 500, 2000
MOST = 1.5


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure queries by columns and files, and what else works on columns by their number."""
    found: list[Figure] = []
    fixed = 0.0
    for columns, files in SHAPES:
        lake = alluvia.connect(str(folder / f"{columns}-{files}"))
        paths = _make_table(lake, columns, files)
        ours, plain = _compared(lake, paths, columns)
        if not found:
            fixed = ours - plain
        beyond = max(ours - fixed, 0.0)
        found.append(
            Figure(
                f"query of two columns, {columns:,} columns and {files} files",
                f"{milliseconds(ours)}, {milliseconds(beyond)} without the fixed part",
                f"{milliseconds(plain)} (DuckDB {duckdb.__version__})",
                beyond / plain,
                f"at most {MOST}",
                beyond <= MOST * plain,
            )
        )
    return [*found, *_by_columns(folder)]


def _make_table(lake: alluvia.Lake, columns: int, files: int) -> list[str]:
    """Create the table `t` of files with the same rows, and return the files' paths."""
    rows = _rows(columns)
    table = lake.create_table("t", rows.schema)
    table.append(rows)
    [first] = table.snapshot().files
    folder = Path(lake.uri.removeprefix("file://")) / "t"
    body = (folder / first.path).read_bytes()
    others = [f"part-00000000-0000-0000-0000-{number:012}.parquet" for number in range(1, files)]
    for path in others:
        (folder / path).write_bytes(body)
    if others:
        table.commit_files([replace(first, path=path, uri=None) for path in others])
    return [str(folder / path) for path in (first.path, *others)]


def _rows(columns: int) -> pa.Table:
    numbers = pa.array(range(ROWS), pa.int64())
    return pa.table({"id": numbers, **{f"c{number}": numbers for number in range(1, columns)}})


def _compared(lake: alluvia.Lake, paths: list[str], columns: int) -> tuple[float, float]:
    """Return the CPU time of one query of ours, and of plain DuckDB."""
    names = 1, columns - 1
    with duckdb.connect() as connection:

        def ours() -> object:
            return [tuple(row.values()) for row in lake.sql(QUERY.format(*names, "t")).to_pylist()]

        def theirs() -> object:
            return connection.execute(QUERY.format(*names, f"read_parquet({paths})")).fetchall()

        assert ours() == theirs()
        turns = [(_cpu(ours, QUERIES), _cpu(theirs, QUERIES)) for _ in range(REPEATS)]
        return min(each for each, _ in turns), min(each for _, each in turns)


def _by_columns(folder: Path) -> list[Figure]:
    """Compare the CPU time of a table of 2,000 columns with 4 times that of one of 500."""
    best: dict[str, dict[int, float]] = {}
    for turn in range(REPEATS):
        for columns in (NARROW, WIDE):
            lake = alluvia.connect(str(folder / f"changes-{turn}-{columns}"))
            for name, action in _actions(lake, _rows(columns)).items():
                known = best.setdefault(name, {})
                known[columns] = min(known.get(columns, float("inf")), _cpu(action, 1))
    times = WIDE / NARROW
    return [
        Figure(
            f"{name}, {WIDE:,} columns",
            milliseconds(by_columns[WIDE]),
            f"{milliseconds(by_columns[NARROW])} ({NARROW} columns)",
            by_columns[WIDE] / by_columns[NARROW],
            f"at most {1.25 * times:.0f}, in proportion {times:.0f}",
            by_columns[WIDE] <= 1.25 * times * by_columns[NARROW],
        )
        for name, by_columns in best.items()
    ]


def _actions(lake: alluvia.Lake, rows: pa.Table) -> dict[str, Callable[[], object]]:
    """Return the operations on a table `t` and a table of events, in order."""
    names = rows.column_names[1:]
    table = lake.create_table("t", rows.schema)
    events = lake.create_events("events", pa.schema([(name, pa.int64()) for name in names]))
    sent = [{"event_id": f"e{row}", "event": "x", **dict.fromkeys(names, row)} for row in range(20)]
    source = "(SELECT 5 AS id, 3 AS v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET c1 = v"
    return {
        "append": lambda: table.append(rows),
        "ingest": lambda: events.ingest(sent),
        "upsert": lambda: table.upsert(rows.slice(0, ROWS // 2), on=["id"]),
        "update": lambda: table.update({"c1": "c1 + 1"}, where="id = 7"),
        "MERGE": lambda: lake.sql(f"MERGE INTO t USING {source}"),
        "SELECT *": lambda: lake.sql("SELECT * FROM t LIMIT 10"),
        "DESCRIBE": lambda: lake.sql("DESCRIBE t"),
        "suggest": events.suggest,
        "optimize": table.optimize,
        "checkpoint": events.checkpoint,
        "opening": lambda: alluvia.connect(lake.uri).table("t").snapshot().schema,
        "verify": lambda: table.verify(full=True),
        "evolve": lambda: table.evolve(add={"more": "string"}),
    }


def _cpu(action: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of one run, from several, of this process and its children."""
    before = _used()
    for _ in range(times):
        action()
    return (_used() - before) / times


def _used() -> float:
    """Return the CPU seconds so far of this process and its living children, which the system counts in ticks."""
    ticks = 0
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
