"""Ways to bring small Parquet files from S3 to DuckDB, all in one process: requests, time and CPU time of a query.

With and without the time that S3 takes for a request.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from alluvia.store import Store
from alluvia.store.caches.file_cache import FileCache, RemoteFile
from benchmarks import duck
from benchmarks.measure import milliseconds
from benchmarks.queries import DELAY_SECONDS, delayed
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from tests.s3server import S3Server

FILES = 40
ROWS = 2_000
REPEATS = 5
QUERY = "SELECT count(*), sum(id), min(name) FROM {} WHERE id % 3 = 0"
TUNED = (
    "SET enable_http_metadata_cache = true",
    "SET parquet_metadata_cache = true",
    "SET httpfs_connection_caching = true",
)
Way = Callable[[], object]


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure each way, in turns, compared with DuckDB on a list of the files."""
    bucket = server.new_bucket()
    store = alluvia.connect(f"s3://{bucket}", **server.options).store
    ways = _ways(server, store, [_put(store, number) for number in range(FILES)], bucket)
    found = []
    for delay in (0.0, DELAY_SECONDS):
        if delay:
            server.inject(*(delayed(method, delay) for method in ("GET", "HEAD")))
        assert len({str(way()) for way in ways.values()}) == 1
        requests = {name: count(server, way) for name, way in ways.items()}
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _turn in range(REPEATS):
            for name, way in ways.items():
                wall, cpu = time.perf_counter(), time.process_time()
                way()
                seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
        server.inject()
        middle = {name: tuple(map(median, zip(*each, strict=True))) for name, each in seconds.items()}
        for name, (wall, cpu) in middle.items():
            title = f"{FILES} small files over S3{f', {1000 * delay:.0f} ms a request' * (delay > 0)}: {name}"
            ours, theirs = (f"{milliseconds(w)}, CPU {milliseconds(c)}" for w, c in ((wall, cpu), middle["by hand"]))
            asked, peer = shown(requests[name]), shown(requests["by hand"])
            bar = "below 1 times" if name == "copies" else ""
            ratio = wall / middle["by hand"][0]
            found.append(Figure(title, f"{asked}: {ours}", f"{peer}: {theirs}", ratio, bar, ratio < 1 if bar else None))
    return found


def _put(store: Store, number: int) -> RemoteFile:
    ids = range(number * ROWS, (number + 1) * ROWS)
    names = [f"name {each * 7919 % 1_000_003}" for each in ids]
    data = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(ids), "name": names, "v": [each / 7 for each in ids]}), data)
    key = f"part-{number}.parquet"
    store.put(key, data.getvalue())
    return RemoteFile(key, len(data.getvalue()), 0)


def _ways(server: S3Server, store: Store, files: list[RemoteFile], bucket: str) -> dict[str, Way]:
    urls = [f"s3://{bucket}/{file.key}" for file in files]

    def by_duckdb(*settings: str) -> object:
        with duck.connect(server.options) as connection:
            for setting in settings:
                connection.execute(setting)
            return connection.execute(QUERY.format(f"read_parquet({urls})")).fetchall()

    def copies(cache: FileCache) -> object:
        held = cache.hold(store, files, 1 << 30)
        paths = [str(path) for path in held.paths.values()]
        with duckdb.connect() as connection:
            answer = connection.execute(QUERY.format(f"read_parquet({paths})")).fetchall()
        held.release()
        return answer

    def by_arrow() -> object:
        bodies = store.map(lambda file: store.get(file.key), files)
        rows = pa.concat_tables([pq.read_table(pa.BufferReader(body), columns=["id", "name"]) for body in bodies])
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            return connection.execute(QUERY.format("rows")).fetchall()

    kept = FileCache()
    return {
        "by hand": by_duckdb,
        "DuckDB with its caches": lambda: by_duckdb(*TUNED),
        "DuckDB, each file downloaded": lambda: by_duckdb("SET force_download_threshold = 4000000"),
        "Arrow tables": by_arrow,
        "copies": lambda: copies(FileCache()),
        "copies that are there": lambda: copies(kept),
    }
