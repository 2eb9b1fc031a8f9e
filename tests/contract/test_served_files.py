"""Large files over S3: a query's process reads what DuckDB asks for, and DuckDB itself reaches no network."""

from __future__ import annotations

import io
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.delta.log.actions import AddFile
from alluvia.delta.statistics.written import file_statistics
from alluvia.engine.duck.failures import EngineError, QueryStopped, QueryTooCostly
from alluvia.errors import Corrupt, Unavailable
from alluvia.operations.reading.relations import Files
from alluvia.processes.pool import Watch
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.process import fetching
from alluvia.query.process.processes import POOL, Engine
from alluvia.query.process.session import Session
from alluvia.store.caches.range_cache import RangeCache
from alluvia.store.caches.served import ServedFile
from tests.s3server import CREDENTIALS, S3Server

FILES, ROWS = 8, 30_000
SUM = "SELECT count(*) AS c, sum(n) AS s, count(DISTINCT name) AS d FROM t"
TOTAL = {"c": FILES * ROWS, "s": sum(range(FILES * ROWS)), "d": 1000}


def rows(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    chance = random.Random(number)
    noise = [chance.getrandbits(62) for _ in ids]
    return pa.table({"n": ids, "name": [f"{each % 1000:03}" for each in ids], "noise": noise})


@pytest.fixture(scope="module")
def uri(s3_server: S3Server) -> str:
    s3_server.inject()
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
    lake.create_table("t", rows(0).schema)
    with lake.transaction() as tx:
        for number in range(FILES):
            tx.table("t").append(rows(number))
    return lake.uri


@pytest.fixture
def lake(uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[alluvia.Lake]:
    """All files are large ones, and nothing is known of them."""
    monkeypatch.setattr(fetching, "SMALL_BYTES", 1000)
    monkeypatch.setattr(fetching, "TAIL_BYTES", 32 << 10)
    POOL.close()
    lake = alluvia.connect(uri, clock=None, **s3_server.options)
    assert min(file.size for file in lake.table("t").snapshot().files) > 2 * fetching.TAIL_BYTES
    s3_server.requests()
    yield lake
    s3_server.inject()


def ask(lake: alluvia.Lake, text: str = SUM, **limits: Any) -> list[dict[str, Any]]:
    return run(lake.catalog, text, QueryLimits(**limits)).read_all().to_pylist()


@pytest.mark.parametrize("threads", [1, 8])
def test_a_file_is_one_request_for_its_footer_and_some_for_rows(
    lake: alluvia.Lake, s3_server: S3Server, threads: int
) -> None:
    assert ask(lake, threads=threads) == [TOTAL]
    first = s3_server.requests()
    assert set(first) == {"GET"}  # and none for a size
    assert 1 + 2 * FILES <= first["GET"] <= 1 + 3 * FILES
    assert ask(lake, threads=threads) == [TOTAL]
    assert s3_server.requests() == {"GET": 1}  # a look for a newer commit: footers and ranges are kept
    assert ask(lake, f"{SUM} WHERE n < {ROWS}", threads=threads) == [{"c": ROWS, "s": sum(range(ROWS)), "d": 1000}]


def test_footers_of_many_files_are_not_fetched_for_a_query_that_may_end_early(
    lake: alluvia.Lake, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alluvia.query.opening.EARLY_FILES", 2)
    assert len(ask(lake, "SELECT n FROM t LIMIT 1", threads=1)) == 1
    assert s3_server.requests()["GET"] <= 1 + 2 + 2
    ask(lake, "EXPLAIN SELECT n FROM t")
    ask(lake, "DESCRIBE t")
    assert s3_server.requests()["GET"] <= 2 + 1


def test_a_longer_footer_than_is_fetched_ahead(
    lake: alluvia.Lake, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TAIL_BYTES", 100)
    monkeypatch.setattr(fetching, "first_read", lambda _: 100)
    assert ask(lake) == [TOTAL]


def test_no_more_bytes_of_the_ends_of_files_are_held_than_a_limit(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    serve = Engine.serve

    def noted(engine: Engine, files: Sequence[ServedFile]) -> None:
        held.extend(len(file.tail) for file in files)
        serve(engine, files)

    monkeypatch.setattr("alluvia.query.process.session.TAILS_BYTES", 40_000)
    monkeypatch.setattr(Engine, "serve", noted)
    assert ask(lake) == [TOTAL]
    assert len(held) == FILES
    assert 40_000 <= sum(held) < 40_000 + max(held)


def test_what_the_store_does_not_serve_is_unavailable(lake: alluvia.Lake, s3_server: S3Server) -> None:
    paths = {file.path for file in lake.table("t").snapshot().files}
    s3_server.inject({"method": "GET", "match": "part-", "fault": "status:403", "times": 1000})
    with pytest.raises(Unavailable, match=r"^the data file \S+ could not be read from the store: try again$") as found:
        ask(lake, threads=8)
    assert any(path in str(found.value) for path in paths)
    s3_server.inject()
    assert ask(lake) == [TOTAL]


def test_a_request_that_fails_once_is_sent_again(lake: alluvia.Lake, s3_server: S3Server) -> None:
    s3_server.inject({"method": "GET", "match": "part-", "fault": "status:503", "times": 3})
    assert ask(lake) == [TOTAL]


def test_a_missing_and_a_shortened_file_are_named(lake: alluvia.Lake) -> None:
    table = lake.table("t")
    snapshot = table.snapshot()
    file = [*snapshot.files][3]
    key = snapshot.key(file)
    data = lake.store.get(key)
    lake.store.delete([key])
    with pytest.raises(Corrupt, match=f"^data file {file.path} is missing$"):
        ask(lake)
    lake.store.put(key, data[: len(data) // 2])
    with pytest.raises(Corrupt, match=file.path):
        ask(lake)
    lake.store.put(key, data)
    assert ask(lake) == [TOTAL]


def test_an_external_file_that_has_changed_is_not_read(lake: alluvia.Lake, s3_server: S3Server, tmp_path: Path) -> None:
    """Whether it has is not asked first: each read says which ETag it wants."""
    bucket = s3_server.new_bucket()
    place = alluvia.connect(f"s3://{bucket}/files", **s3_server.options).store
    for number in range(2):
        pq.write_table(rows(number), tmp_path / "x.parquet")
        place.put_new_file(f"{number}.parquet", tmp_path / "x.parquet")
    lake.create_external("outside", f"s3://{bucket}/files/*.parquet")
    s3_server.requests()
    assert ask(lake, SUM.replace(" t", " outside"))[0]["c"] == 2 * ROWS
    assert set(s3_server.requests()) == {"GET"}
    pq.write_table(rows(5), tmp_path / "x.parquet")
    place.put("1.parquet", (tmp_path / "x.parquet").read_bytes())
    POOL.close()
    with pytest.raises(Corrupt, match="a file of an external table, has changed: refresh the table"):
        ask(lake, "SELECT sum(noise) AS s FROM outside")
    lake.drop_table("outside")


def test_the_database_has_no_extension_and_no_secret(lake: alluvia.Lake) -> None:
    snapshot = lake.table("t").snapshot()
    files = [*snapshot.files]
    session = Session(lake.store, QueryLimits(), Watch())
    try:
        session.begin()
        session.open({"scan_0": Files(snapshot, files[:1])})
        execute = session._engine.execute
        assert execute("SELECT count(*) FROM alluvia.scan_0").fetchall() == [[ROWS]]
        shown = str([execute(f"FROM duckdb_{what}()").fetchall() for what in ("secrets", "settings", "views")])
        for secret in (*CREDENTIALS.values(), lake.uri, "127.0.0.1"):
            assert secret not in shown
        assert execute("FROM read_blob('alluvia:///0.parquet')").fetchall() == []
        for text in (
            "LOAD httpfs",
            "FROM 'alluvia://1.parquet'",
            "FROM glob('alluvia://*')",
            f"FROM '{lake.store.url(snapshot.key(files[0]))}'",
            f"FROM '{lake.store.url(snapshot.key(files[1]))}'",
            "COPY (SELECT 1) TO 'alluvia://0.parquet'",
            "COPY (SELECT 1) TO 'alluvia://2.parquet'",
        ):
            with pytest.raises(EngineError):
                execute(text)
    finally:
        session.close()


def test_a_query_is_cancelled_while_the_store_does_not_answer(lake: alluvia.Lake, s3_server: S3Server) -> None:
    s3_server.inject({"method": "GET", "match": "part-", "fault": "delay:3", "times": 1000})
    asked = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, lake, cancelled=asked.is_set, threads=4)
        asked.set()
        with pytest.raises(QueryStopped):
            running.result()
    s3_server.inject()
    assert ask(lake) == [TOTAL]


def test_a_process_that_the_system_ends_before_it_serves_is_out_of_memory(lake: alluvia.Lake) -> None:
    snapshot = lake.table("t").snapshot()
    session = Session(lake.store, QueryLimits(), Watch())
    try:
        session.begin()
        process = session._engine._worker._process
        process.kill()
        process.wait()
        with pytest.raises(QueryTooCostly, match="memory"):
            session.open({"scan_0": Files(snapshot, [*snapshot.files])})
    finally:
        session.close()


def test_rows_that_are_not_wanted_end_the_reading(lake: alluvia.Lake) -> None:
    for _ in range(3):
        with run(lake.catalog, "SELECT n, noise FROM t", QueryLimits(threads=8)) as result:
            assert len(next(iter(result))) > 0
    assert ask(lake) == [TOTAL]


def test_several_queries_at_once(lake: alluvia.Lake) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: ask(lake, f"{SUM} WHERE n % 4 = {n}", threads=4), range(4)))
    assert sum(each["c"] for (each,) in found) == FILES * ROWS
    assert sum(each["s"] for (each,) in found) == TOTAL["s"]


@pytest.fixture(scope="module")
def wide_uri(s3_server: S3Server) -> str:
    """A table of one file of 18 MB, with three row groups of eight columns, in the order of `a`."""
    s3_server.inject()
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/wide", **s3_server.options)
    count = 300_000
    noise = pa.py_buffer(random.Random(5).randbytes(8 * count))
    column = pa.Array.from_buffers(pa.int64(), count, [None, noise])
    table = pa.table({"a": pa.array(range(count), pa.int64()), **dict.fromkeys("bcdefgh", column)})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_dictionary=False, row_group_size=count // 3)
    lake.create_table("t", table.schema)
    lake.store.put("t/part-0.parquet", sink.getvalue())
    stats, now_ms = file_statistics(table, 32), time.time_ns() // 1_000_000
    add = AddFile("part-0.parquet", {}, len(sink.getvalue()), now_ms, data_change=True, stats=stats)
    lake.table("t").commit_files([add])
    return lake.uri


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("SELECT sum(h) FROM t", 3),
        ("SELECT sum(b), sum(d), sum(f), sum(h) FROM t", 6),
        ("SELECT max(b) AS b, max(c), max(d), max(e) FROM t WHERE h > 0", 6),  # b, c, d and e are side by side
        ("SELECT b, d, f FROM t WHERE h = 5", 3),  # no row: nothing but the column of the condition
        ("SELECT b, d, f FROM t WHERE a = 150000", 4),  # one row group of three
        ("SELECT b, d, f FROM t LIMIT 5", 1),
    ],
)
def test_a_large_file_takes_its_footer_and_the_columns_that_are_needed(
    wide_uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, text: str, requests: int
) -> None:
    """The footer is one request, as long as DuckDB reads no more of a large file's end than is fetched ahead."""
    POOL.close()
    monkeypatch.setattr("alluvia.query.process.session.RANGES", RangeCache())
    lake = alluvia.connect(wide_uri, **s3_server.options)
    lake.table("t").snapshot()
    s3_server.requests()
    ask(lake, text, threads=1)
    looked, footer = 1, 1
    assert s3_server.requests() == {"GET": looked + footer + requests}
    ask(lake, text, threads=1)
    assert s3_server.requests() == {"GET": looked}
