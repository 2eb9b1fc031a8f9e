"""Programs that read files of other servers read the URL of a published query: DuckDB, Polars and fsspec."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.query import engine
from alluvia.server import serve
from alluvia.serverless.settings import environment
from functions.query import answering
from tests.peer_duckdb import FOLDER, Peer

ROWS = 150_000
SQL = "SELECT n, md5(n::VARCHAR) AS text FROM numbers WHERE n >= $least ORDER BY n"
NOW = "SELECT n, now() AS seen FROM numbers WHERE n < 1000"
LARGE_FORM = "large"


class Server:
    """A lake that is served in a thread: the requests that came, and how often a query ran for them.

    Its clock stands still unless told, so that a slow machine makes no reader begin again.
    """

    def __init__(self, lake: alluvia.Lake, clock: ManualClock, port: int, lines: list[str], runs: list[str]) -> None:
        self.lake, self.clock, self.port, self._lines, self._runs = lake, clock, port, lines, runs

    def url(self, name: str, **values: object) -> str:
        fields = "&".join(f"{key}={value}" for key, value in values.items())
        return f"http://127.0.0.1:{self.port}/v1/queries/{name}?{fields}"

    def counted(self) -> tuple[Counter[str], int]:
        """Return how many requests of each method and status came since the last call, and how often a query ran."""
        found = Counter(match[1] for line in self._lines if (match := re.search(r" ((?:GET|HEAD) \S+ \d{3}) ", line)))
        requests = Counter[str]()
        for text, count in found.items():
            method, _, status = text.split()
            requests[f"{method} {status}"] += count
        runs = len(self._runs)
        self._lines.clear()
        self._runs.clear()
        return requests, runs

    def send(self, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, headers={name.replace("_", "-"): each for name, each in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()


@pytest.fixture(scope="module", params=["", LARGE_FORM])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose result fits into an answer, and one whose result is too large for one."""
    place = tmp_path_factory.mktemp("lake")
    lines: list[str] = []
    runs: list[str] = []
    clock = ManualClock(time.time_ns() // 1000)
    settings = {"ALLUVIA_RESULT_CACHE_RESULT_BYTES": "1000"} if request.param else {}
    with pytest.MonkeyPatch.context() as patch, environment(settings, without=["ALLUVIA_AUTH"]):
        patch.setattr(serve, "_log_nothing", lines.append)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        run = engine.run_rendered

        def counted(*given: Any, **named: Any) -> Any:
            runs.append(given[1])
            clock.advance(10)  # a query may take longer than readers that begin are taken for one
            return run(*given, **named)

        patch.setattr(answering, "run_rendered", counted)
        lake = alluvia.connect(str(place), clock=clock)
        lake.create_table("numbers", {"n": "long"})
        lake.sql(f"INSERT INTO numbers SELECT i FROM range({ROWS}) t(i)")
        lake.publish_query("top", SQL, {"least": "long=0"})
        lake.publish_query("fresh", NOW)
        with serve.in_background(lake) as port:
            yield Server(lake, clock, port, lines, runs)


@pytest.fixture(autouse=True)
def other_readers(server: Server) -> None:
    """Begin with no result and no reader that another test has left."""
    server.lake.store.delete([info.key for info in server.lake.store.list("_alluvia/results/")])
    server.counted()


def duckdb_sum(url: str) -> int:
    with Peer("httpfs") as peer:
        return int(peer.execute(f"SELECT sum(n) FROM read_parquet('{url}') WHERE text IS NOT NULL").fetchall()[0][0])


def polars(expression: str) -> str:
    code = f"import polars as pl; print({expression})"
    paths = {"PYTHONPATH": str(FOLDER.with_name("frames"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def polars_scan(url: str) -> int:
    return int(polars(f"pl.scan_parquet({url!r}).select(pl.col('n').sum(), pl.col('text').max()).collect()[0, 'n']"))


def polars_read(url: str) -> int:
    return int(polars(f"pl.read_parquet({url!r})['n'].sum()"))


def fsspec_sum(url: str) -> int:
    with fsspec.open(url, block_size=200_000) as file:
        return int(sum(pq.read_table(file)["n"].to_pylist()))


READERS = [duckdb_sum, polars_scan, polars_read, fsspec_sum]


@pytest.mark.parametrize("read", READERS)
def test_readers_of_parquet_read_the_url_of_a_published_query(server: Server, read: Callable[[str], int]) -> None:
    assert read(server.url("top.parquet", least=10)) == sum(range(10, ROWS))
    requests, runs = server.counted()
    assert runs == 1
    assert requests["GET 206"] >= 2
    assert {*requests} <= {"GET 206", "HEAD 200"}
    assert read(server.url("top.parquet", least=10)) == sum(range(10, ROWS))
    assert server.counted() == (requests, 0)


def test_the_url_of_a_query_of_ones_own_is_read_alike(server: Server) -> None:
    sql = "SELECT%20n,%20'a'%20AS%20text%20FROM%20numbers"
    url = f"http://127.0.0.1:{server.port}/q?format=parquet&query={sql}"
    assert polars_read(url) == sum(range(ROWS))
    assert server.counted()[1] == 1


def test_all_ranges_of_a_reader_are_of_one_result(server: Server) -> None:
    path = "/v1/queries/top.parquet?least=0"
    head, body = server.send(path, "HEAD")
    size = int(head.headers["Content-Length"])
    assert (head.status, body, head.headers["Accept-Ranges"]) == (200, b"", "bytes")
    file = b""
    for start in range(0, size, size // 4):
        answer, part = server.send(path, Range=f"bytes={start}-{start + size // 4 - 1}")
        assert (answer.status, answer.headers["ETag"]) == (206, head.headers["ETag"])
        assert answer.headers["Content-Range"] == f"bytes {start}-{start + len(part) - 1}/{size}"
        file += part
        server.lake.table("numbers").append([{"n": 10_000_000 + start}])
    assert sum(pq.read_table(io.BytesIO(file))["n"].to_pylist()) == sum(range(ROWS))
    assert server.counted()[1] == 1
    other, _ = server.send(path, "HEAD", User_Agent="another program")
    assert other.headers["ETag"] != head.headers["ETag"]
    goes_on, _ = server.send(path, Range="bytes=4-9")
    assert goes_on.headers["ETag"] == head.headers["ETag"]
    server.lake.table("numbers").delete("n >= 10000000")


def test_a_query_whose_answer_may_change_runs_once_for_a_reader(server: Server) -> None:
    path = "/v1/queries/fresh.parquet"
    head, _ = server.send(path, "HEAD")
    size = int(head.headers["Content-Length"])
    parts = [server.send(path, Range=f"bytes={start}-{start + 999}")[1] for start in range(0, size, 1000)]
    assert len(parts) > 3
    table = pq.read_table(io.BytesIO(b"".join(parts)))
    assert (table.num_rows, len(set(table["seen"].to_pylist()))) == (1000, 1)
    assert server.counted()[1] == 1
    assert head.headers["Cache-Control"] == "no-store"
    whole, body = server.send(path)
    assert (whole.status, "ETag" in whole.headers) == (200, False)
    assert pq.read_table(io.BytesIO(body))["seen"][0].as_py() > table["seen"][0].as_py()


def test_a_reader_that_begins_later_gets_the_rows_of_now(server: Server) -> None:
    path = "/v1/queries/top.parquet?least=149999"
    first, _ = server.send(path, "HEAD")
    server.lake.table("numbers").append([{"n": ROWS}])
    assert server.send(path, "HEAD")[0].headers["ETag"] == first.headers["ETag"]  # another may still be reading
    server.clock.advance(6)
    assert server.send(path, Range="bytes=4-9")[0].headers["ETag"] == first.headers["ETag"]
    assert server.send(path, "HEAD")[0].headers["ETag"] == first.headers["ETag"]
    server.clock.advance(6)
    later, _ = server.send(path, "HEAD")
    assert later.headers["ETag"] != first.headers["ETag"]
    assert server.send(path, Range="bytes=4-9")[0].headers["ETag"] == later.headers["ETag"]
    server.lake.table("numbers").delete(f"n = {ROWS}")


def test_if_range_gives_a_part_of_the_version_that_it_names_or_all(server: Server) -> None:
    path = "/v1/queries/top.csv?least=149990"
    head, _ = server.send(path, "HEAD")
    tag = head.headers["ETag"]
    part, body = server.send(path, Range="bytes=0-5", If_Range=tag)
    assert (part.status, body) == (206, b"n,text")
    server.lake.table("numbers").append([{"n": ROWS}])
    assert server.send(path, Range="bytes=0-5", If_Range=tag)[0].status == 206
    for other in ('"other"', f"W/{tag}", "Sat, 28 Nov 2026 10:00:00 GMT"):
        whole, body = server.send(path, Range="bytes=0-5", If_Range=other)
        assert (whole.status, whole.headers["ETag"] != tag) == (200, True)
        assert len(body.splitlines()) == 12
    server.lake.table("numbers").delete(f"n = {ROWS}")


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=5-2",
        "bytes=-",
        "bytes=0-1,3-4",
        "bytes=" + ",".join(["0-"] * 1000),
        "lines=1-2",
        "bytes=" + "9" * 30 + "-",
        "bytes=0x1-2",
    ],
)
def test_what_is_not_one_range_is_answered_with_the_whole(server: Server, asked: str) -> None:
    answer, body = server.send("/v1/queries/top.csv?least=149990", Range=asked)
    assert (answer.status, len(body.splitlines())) == (200, 11)


def test_a_range_beyond_the_end_is_refused_with_the_size(server: Server) -> None:
    path = "/v1/queries/top.csv?least=149990"
    size = int(server.send(path, "HEAD")[0].headers["Content-Length"])
    for asked in (f"bytes={size}-", "bytes=999999999999999999-", "bytes=-0"):
        answer, body = server.send(path, Range=asked)
        assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{size}"), asked
        assert b"ask for a range within them" in body
    last, body = server.send(path, Range=f"bytes={size - 2}-999999999999999999")
    assert (last.status, body) == (206, b"\r\n")
    all_of_it, body = server.send(path, Range="bytes=-999999999999999999")
    assert (all_of_it.status, len(body)) == (206, size)


def test_a_tag_of_a_head_is_good_for_a_304(server: Server) -> None:
    path = "/v1/queries/top.parquet?least=149990"
    tag = server.send(path, "HEAD")[0].headers["ETag"]
    for method in ("GET", "HEAD"):
        assert server.send(path, method, If_None_Match=tag, Range="bytes=0-3")[0].status == 304


def test_an_erasure_ends_what_readers_have_begun(server: Server) -> None:
    path = "/v1/queries/fresh.csv"
    assert server.send(path, Range="bytes=0-9")[1] == b"n,seen\r\n0,"
    server.lake.table("numbers").erase("n = 0")
    assert server.send(path, Range="bytes=8-9")[1] == b"1,"
    server.lake.table("numbers").append([{"n": 0}])


def test_without_kept_results_there_are_no_ranges(server: Server) -> None:
    with environment({"ALLUVIA_RESULT_CACHE": "off"}):
        answer, body = server.send("/v1/queries/top.csv?least=149990", Range="bytes=0-5")
    assert (answer.status, len(body.splitlines()), answer.headers["Accept-Ranges"]) == (200, 11, None)


def link_to(server: Server, values: dict[str, str], form: str, **more: Any) -> str:
    with environment({"ALLUVIA_URL": f"http://127.0.0.1:{server.port}"}):
        return server.lake.link_query("top", values, format=form, **more)


@pytest.mark.parametrize("read", [duckdb_sum, polars_scan])
def test_readers_read_a_link_where_callers_need_tokens(server: Server, read: Callable[[str], int]) -> None:
    url = link_to(server, {"least": "10"}, "parquet")
    with environment({"ALLUVIA_AUTH": "tokens"}):
        assert server.send("/v1/queries/top.parquet")[0].status == 401
        assert read(url) == sum(range(10, ROWS))
    assert server.counted()[1] == 1


def test_a_link_is_opened_from_a_mail_and_not_by_scripts_of_other_sites(server: Server) -> None:
    path = link_to(server, {"least": "140000"}, "csv").partition(str(server.port))[2]
    opened = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Referer": "https://mail.example/"}
    with environment({"ALLUVIA_AUTH": "tokens"}):
        answer, body = server.send(path, **opened)
        if answer.status == 303:  # a large result
            answer, body = server.send(str(answer.headers["Location"]), **opened)
        assert (answer.status, len(body.splitlines())) == (200, 10_001)
        assert server.send(path.replace("links", "queries"), **opened)[0].status == 403
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            assert server.send(path, **headers)[0].status == 403
        with environment({"ALLUVIA_CORS_ORIGINS": "HTTPS://App.example:443"}):
            asked = {"Access_Control_Request_Method": "GET", "Access_Control_Request_Headers": "range"}
            preflight, _ = server.send(path, "OPTIONS", Origin="https://app.example", **asked)
            assert (preflight.status, preflight.headers["Access-Control-Allow-Headers"]) == (204, "range")
            part, _ = server.send(path, Origin="https://app.example", Range="bytes=0-5")
            assert (part.status, part.headers["Access-Control-Allow-Origin"]) == (206, "https://app.example")
            exposed = part.headers["Access-Control-Expose-Headers"].split(", ")
            assert {"ETag", "Content-Range", "Accept-Ranges", "Link"} <= {*exposed}
