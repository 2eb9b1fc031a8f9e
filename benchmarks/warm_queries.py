"""Warm queries in the library and over HTTP, compared with plain DuckDB over the same Parquet files.

Tables of 5 to 500 columns and 1 to 200 files; TPC-H at scale 0.1 and 1; a table in the shape of ClickBench's.
"""

from __future__ import annotations

import http.client
import json
import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median

import duckdb
import pyarrow as pa

import alluvia
from alluvia.query.process.processes import POOL
from benchmarks import duck, hits
from benchmarks.report import Figure
from tests.s3server import S3Server
from tests.serving import serving

SHAPES = ((5, 1), (50, 1), (500, 1), (5, 20), (50, 20), (5, 200))
"""Numbers of columns, and of files."""
ROWS = 100_000
QUERY = "SELECT c0 % 100 AS k, count(*) AS n, sum(c1) AS s FROM t WHERE c2 < {} GROUP BY k ORDER BY k"
"""A server caches results, so it is asked not to, or gets another text each time."""
SCALES = (0.1, 1)
HITS = 1_000_000
LIBRARY_MS, HTTP_MS = 12, 20
"""Limit for the time of a query beyond plain DuckDB's."""
RATIO_MAX, GEOMETRIC_MEAN_MAX = 1.5, 1.2
REPEATS, REPEATS_LARGE = 25, 3


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure a query of tables of many shapes."""
    found: list[Figure] = []
    for columns, files in SHAPES:
        found += _shape(folder / f"{columns}_{files}", columns, files)
    return found


def suites(_: S3Server, folder: Path) -> list[Figure]:
    """Measure the queries of other benchmarks."""
    found: list[Figure] = []
    for scale in SCALES:
        tables, queries = _tpch(scale)
        found += _suite(folder / f"tpch_{scale}", f"TPC-H {scale}", tables, queries)
    found += _suite(folder / "hits", f"ClickBench's shape, {HITS:,} rows", {"hits": hits.rows(HITS)}, hits.QUERIES)
    return found


def _shape(place: Path, columns: int, files: int) -> list[Figure]:
    """Measure a query of three columns."""
    names = [f"c{number}" for number in range(columns)]
    rows = pa.table(
        {name: [(at * (number + 7)) % 1009 for at in range(ROWS // files)] for number, name in enumerate(names)}
    )
    lake = alluvia.connect(f"file://{place}")
    table = lake.create_table("t", rows.schema)
    for _ in range(files):
        table.append(rows)
    other = count(1)
    title = f"{columns} columns, {files} file{'s' if files > 1 else ''}"
    with duckdb.connect() as plain, serving(place, quiet=True) as (_, port):
        _plain_views(plain, lake)
        ask = _over_http(port)
        sides: dict[str, Callable[[], object]] = {
            "plain": lambda: plain.execute(QUERY.format(500)).to_arrow_table(),
            "library": lambda: lake.sql(QUERY.format(500)),
            "library, another text": lambda: lake.sql(QUERY.format(500 + next(other))),
            "HTTP": lambda: ask(QUERY.format(500), {"Cache-Control": "no-cache"}),
            "HTTP, another text, whose result is kept": lambda: ask(QUERY.format(500 + next(other)), {}),
        }
        assert sides["library"]().to_pylist() == sides["plain"]().to_pylist()  # type: ignore[attr-defined]
        seconds = _in_turns(sides, REPEATS)
    return [
        _beyond(f"{title}: {side}", seconds[side], seconds["plain"], limit)
        for side, limit in zip(list(sides)[1:], (LIBRARY_MS, LIBRARY_MS, HTTP_MS, HTTP_MS), strict=True)
    ]


def _beyond(name: str, ours: Sequence[float], theirs: Sequence[float], limit_ms: float) -> Figure:
    beyond = (min(ours) - min(theirs)) * 1000
    allowed = (RATIO_MAX - 1) * min(theirs) * 1000 + limit_ms
    return Figure(
        name,
        f"{_shown(ours)}; {beyond:.1f} ms beyond",
        f"{_shown(theirs)} (DuckDB {duckdb.__version__})",
        min(ours) / min(theirs),
        f"≤ {RATIO_MAX} and {limit_ms} ms beyond",
        beyond <= allowed,
    )


def _shown(seconds: Sequence[float]) -> str:
    return f"{min(seconds) * 1000:.1f} ms (median {median(seconds) * 1000:.1f})"


def _suite(place: Path, title: str, tables: Mapping[str, pa.Table], queries: Sequence[str]) -> list[Figure]:
    """Measure queries, and say which are over the bar, with and without the fixed part."""
    lake = alluvia.connect(f"file://{place}")
    for name, rows in tables.items():
        lake.create_table(name, rows.schema).append(rows)
    ratios, over, cpu = [], [], {"plain": 0.0, "library": 0.0}
    with duckdb.connect() as plain:
        _plain_views(plain, lake)
        for number, query in enumerate(queries, 1):
            sides: dict[str, Callable[[], object]] = {
                "plain": lambda: plain.execute(query).to_arrow_table(),  # noqa: B023 - called in this turn
                "library": lambda: lake.sql(query),  # noqa: B023
            }
            seconds = _in_turns(sides, REPEATS_LARGE, cpu)
            ours, theirs = min(seconds["library"]), min(seconds["plain"])
            ratios.append(ours / theirs)
            if ours > RATIO_MAX * theirs + LIBRARY_MS / 1000:
                over.append(f"{number}: {ours * 1000:.0f} of {theirs * 1000:.0f} ms")
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    tiny = sum(each > RATIO_MAX for each in ratios) - len(over)
    return [
        Figure(f"{title}: geometric mean of {len(ratios)} queries", "", "", mean, f"≤ {GEOMETRIC_MEAN_MAX}",
               mean <= GEOMETRIC_MEAN_MAX),
        Figure(f"{title}: queries over {RATIO_MAX} and {LIBRARY_MS} ms", "; ".join(over) or "none",
               f"{tiny} over {RATIO_MAX} by the fixed part", max(ratios), "none", not over),
        Figure(f"{title}: CPU time of all, with the next databases", f"{cpu['library']:.1f} s", f"{cpu['plain']:.1f} s",
               cpu["library"] / cpu["plain"]),
    ]  # fmt: skip


def _in_turns(
    sides: Mapping[str, Callable[[], object]], repeats: int, cpu: dict[str, float] | None = None
) -> dict[str, list[float]]:
    """Return the seconds of each run after a first, uncounted one. Query processes open databases in between."""
    found: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(repeats + 1):
        for side, action in sides.items():
            used, began = _cpu(), time.perf_counter()
            action()
            seconds = time.perf_counter() - began
            time.sleep(0.03)
            if turn:
                found[side].append(seconds)
                if cpu is not None:
                    cpu[side] += _cpu() - used
    return found


def _cpu() -> float:
    """Return the CPU time of this process and of those of its queries, in seconds."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    used = own.ru_utime + own.ru_stime
    for worker in POOL._idle:
        fields = Path(f"/proc/{worker._process.pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / 100
    return used


def _plain_views(connection: duckdb.DuckDBPyConnection, lake: alluvia.Lake) -> None:
    """Give DuckDB views of the data files of a lake's tables."""
    for name in lake.tables():
        snapshot = lake.table(name).snapshot()
        urls = [lake.store.url(snapshot.key(file)) for file in snapshot.files]
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet({urls})")


def _over_http(port: int) -> Callable[[str, Mapping[str, str]], object]:
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(query: str, headers: Mapping[str, str]) -> object:
        body = json.dumps({"query": query})
        connection.request("POST", "/q", body, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        data = response.read()
        assert response.status == 200, data
        return data

    return ask


def _tpch(scale: float) -> tuple[dict[str, pa.Table], list[str]]:
    """Return the tables and the queries of TPC-H, as DuckDB's extension makes them."""
    with duck.connect({}, "tpch") as peer:
        peer.execute(f"CALL dbgen(sf = {scale})")
        names = [name for (name,) in peer.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        tables = {name: peer.execute(f"FROM {name}").to_arrow_table() for name in names}
        queries = peer.execute("SELECT query FROM tpch_queries() ORDER BY query_nr").fetchall()
    return tables, [query for (query,) in queries]
