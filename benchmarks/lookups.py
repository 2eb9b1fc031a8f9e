"""A look-up of one id among 10,000 files clustered by it, over S3: ours, `delta_scan`, and DuckDB on its file.

Ids are random texts, as event ids are; a file holds a range of them. Of the others than the one that is asked for, only
the log's entries are there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import alluvia
from alluvia.delta.log.actions import AddFile
from alluvia.delta.statistics.written import file_statistics
from benchmarks import duck
from benchmarks.measure import in_turns, medians, milliseconds
from benchmarks.queries import DELAY_SECONDS, delayed
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from benchmarks.tables import MADE_MS, OPEN
from tests.s3server import S3Server

FILES = 10_000
ROWS = 5_000
COMMIT_FILES = 1_000
ASKED = 4_321
REPEATS = 5
SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])
_STEP = 2**64 // (FILES * ROWS)


def _id(number: int) -> str:
    return f"{number * _STEP:016x}"


WANTED = _id(ASKED * ROWS + 17)
QUERY = f"SELECT * FROM {{}} WHERE id = '{WANTED}'"


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure requests and time with 30 ms for each request of a data file."""
    bucket = server.new_bucket()
    lake = alluvia.connect(f"s3://{bucket}", **server.options)
    path = _make_table(lake)
    ready = [_opened(bucket, server) for _ in range(REPEATS + 2)]
    server.inject(*(delayed(method, DELAY_SECONDS) for method in ("GET", "HEAD")))

    def ask(there: alluvia.Lake) -> object:
        return [tuple(row.values()) for row in there.sql(QUERY.format("t")).to_pylist()]

    def bare(source: str, *extensions: str) -> object:
        with duck.connect(server.options, *extensions) as connection:
            return connection.execute(QUERY.format(source)).fetchall()

    actions: dict[str, Callable[[], object]] = {
        "warm handle": lambda: ask(ready.pop()),
        "warm handle, asked again": lambda: ask(lake),
        "cold handle": lambda: ask(alluvia.connect(f"s3://{bucket}", **server.options)),
        "delta_scan": lambda: bare(f"delta_scan('s3://{bucket}/t')", "delta"),
        "by hand": lambda: bare(f"read_parquet('s3://{bucket}/t/{path}')"),
    }
    answers = [action() for action in actions.values()]
    assert all(answer == [(WANTED, 17)] for answer in answers), answers
    requests = {name: count(server, action) for name, action in actions.items()}
    seconds = medians(in_turns(actions, REPEATS))
    server.inject()
    found = []
    for side in list(actions)[:3]:
        title = f"Look-up of an id among {FILES:,} files over S3, 30 ms a request, {side}"
        for peer in ("delta_scan", "by hand"):
            ratio = seconds[side] / seconds[peer]
            ours, theirs = (f"{shown(requests[one])}: {milliseconds(seconds[one])}" for one in (side, peer))
            bar = "" if (side, peer) == ("cold handle", "by hand") else "below 1 times"
            found.append(Figure(title, ours, f"{theirs} ({peer})", ratio, bar, ratio < 1 if bar else None))
    return found


def _opened(bucket: str, server: S3Server) -> alluvia.Lake:
    lake = alluvia.connect(f"s3://{bucket}", **server.options)
    lake.table("t").snapshot()
    return lake


def _make_table(lake: alluvia.Lake) -> str:
    """Create the table `t`, with a checkpoint, and return the name of its one file that is there."""
    table = lake.create_table("t", SCHEMA, properties=OPEN, cluster_by=["id"])
    files = []
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        if number == ASKED:
            rows = pa.Table.from_arrays([pa.array(map(_id, ids)), pa.array(range(ROWS), pa.int64())], schema=SCHEMA)
            files += table._handle.writer(table.snapshot()).write(rows)
            continue
        ends = pa.Table.from_arrays(
            [pa.array([_id(ids[0]), _id(ids[-1])]), pa.array([0, ROWS], pa.int64())], schema=SCHEMA
        )
        stats = file_statistics(ends, 32)
        files.append(AddFile(f"part-{number}.parquet", {}, 300_000, MADE_MS, data_change=True, stats=stats))
    for start in range(0, FILES, COMMIT_FILES):
        table.commit_files(files[start : start + COMMIT_FILES])
    table.checkpoint()
    return files[ASKED].path
