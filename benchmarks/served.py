"""Large files over S3 through our own file system object, compared with httpfs of DuckDB 1.5.5, at 20 ms a request.

Queries of some of six columns, in a fresh process for each side (cold), and asked again of the same process (warm).
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from alluvia.delta.log.actions import AddFile
from alluvia.delta.statistics.written import file_statistics
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.process.processes import POOL
from benchmarks import duck
from benchmarks.measure import milliseconds
from benchmarks.queries import delayed
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from benchmarks.tables import MADE_MS
from tests.s3server import S3Server

DELAY_SECONDS = 0.02
REPEATS = 3
SHAPES = ((1, 5), (20, 5), (200, 5), (4, 40), (1, 60), (1, 200))
"""Numbers of files, and their megabytes. The test server copies an object for each range of it: a larger
one measures that server."""
THREADS = (1, 8)
QUERY = "SELECT count(*), sum(n), max(b) FROM {} WHERE a >= 0"
MORE_QUERIES = {
    "one column": "SELECT sum(n) FROM {}",
    "four columns": "SELECT sum(a), sum(c), sum(m), sum(n) FROM {}",
    "no row": "SELECT b, d FROM {} WHERE a = 5",
}
OF_MORE_QUERIES = ((1, 5), (20, 5), (1, 60))
_ROW_BYTES = 48


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure requests and time, cold and warm."""
    found = []
    for files, megabytes in SHAPES:
        bucket = server.new_bucket()
        lake = alluvia.connect(f"s3://{bucket}", **server.options)
        paths = _make_table(lake, files, megabytes)
        urls = [f"s3://{bucket}/t/{path}" for path in paths]
        for threads in THREADS:
            title = f"{files} of {megabytes} MB, {threads} threads"
            found += _compared(server, lake, urls, QUERY, threads, title)
            for name, query in MORE_QUERIES.items() if (files, megabytes) in OF_MORE_QUERIES else ():
                found += _compared(server, lake, urls, query, threads, f"{title}, {name}")
        lake.store.delete([info.key for info in lake.store.list("")])
    return found


def _compared(
    server: S3Server, lake: alluvia.Lake, urls: list[str], query: str, threads: int, title: str
) -> list[Figure]:
    lake.table("t").snapshot()
    server.inject(*(delayed(method, DELAY_SECONDS) for method in ("GET", "HEAD")))
    sides: dict[str, list[float]] = {"cold": [], "warm": [], "httpfs": []}
    requests = {}

    def ours(there: alluvia.Lake) -> object:
        found = run(there.catalog, query.format("t"), QueryLimits(threads=threads)).read_all()
        return [tuple(row.values()) for row in found.to_pylist()]

    def theirs() -> object:
        with duck.connect(server.options) as connection:
            connection.execute(f"SET threads = {threads}")
            connection.execute("SET enable_http_metadata_cache = true")
            return connection.execute(query.format(f"read_parquet({urls})")).fetchall()

    for _turn in range(REPEATS):
        POOL.close()
        fresh = alluvia.connect(lake.uri, **server.options)
        fresh.sql("SELECT 1 FROM t LIMIT 0")  # there is a process, which has read nothing
        answers = []
        actions: dict[str, Callable[[], object]] = {
            "cold": lambda: ours(fresh),  # noqa: B023 - called in this turn
            "warm": lambda: ours(fresh),  # noqa: B023
            "httpfs": theirs,
        }
        for side, action in actions.items():
            began = time.perf_counter()
            requests[side] = count(server, lambda: answers.append(action()))  # noqa: B023
            sides[side].append(time.perf_counter() - began)
        assert answers[0] == answers[1] == answers[2], answers
    server.inject()
    peer = median(sides["httpfs"])
    return [
        Figure(
            f"{title}: {side}",
            f"{shown(requests[side])}: {milliseconds(median(sides[side]))}",
            f"{shown(requests['httpfs'])}: {milliseconds(peer)} (httpfs 1.5.5)",
            median(sides[side]) / peer,
        )
        for side in ("cold", "warm")
    ]


def _make_table(lake: alluvia.Lake, files: int, megabytes: int) -> list[str]:
    """Create the table `t` of files with the same rows, which do not compress, and return the files' paths."""
    rows = megabytes * 1_000_000 // _ROW_BYTES
    chance = Random(megabytes)
    noise = b"".join(chance.randbytes(rows * 8) for _ in range(5))
    columns = pa.Array.from_buffers(pa.int64(), 5 * rows, [None, pa.py_buffer(noise)])
    rows_of_all = pa.table({name: columns[at * rows : (at + 1) * rows] for at, name in enumerate("abcdm")})
    rows_of_all = rows_of_all.append_column("n", pa.array(range(rows), pa.int64()))
    data = io.BytesIO()
    pq.write_table(rows_of_all, data, compression="none", use_dictionary=False, row_group_size=1 << 18)
    table, body, paths = lake.create_table("t", rows_of_all.schema), data.getvalue(), []
    for number in range(files):
        paths.append(f"part-{number}.parquet")
        lake.store.put(f"t/{paths[-1]}", body)
    stats = file_statistics(rows_of_all, 32)
    table.commit_files([AddFile(path, {}, len(body), MADE_MS, data_change=True, stats=stats) for path in paths])
    return paths
