"""Results that are too large for an answer, on S3: links, over real HTTP, to what the lake got."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.operations.results.results import LARGE
from alluvia.query import engine
from alluvia.query.engine import Rendered
from functions.query import answering
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import Answer, error_of, event
from tests.s3server import S3Server

ALL = "SELECT * FROM totals ORDER BY n"


@pytest.fixture(scope="module")
def lake(s3_server: S3Server) -> Iterator[alluvia.Lake]:
    s3_server.inject()
    with pytest.MonkeyPatch.context() as patch:
        lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
        patch.setenv("ALLUVIA_LAKE", lake.uri)
        patch.setenv("ALLUVIA_ENDPOINT_URL", s3_server.endpoint_url)
        patch.setenv("AWS_ACCESS_KEY_ID", s3_server.options["access_key_id"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.options["secret_access_key"])
        patch.setenv("ALLUVIA_RESULT_CACHE", "on")
        patch.setenv("ALLUVIA_RESULT_LIMIT_BYTES", "1000")
        patch.setenv("ALLUVIA_MAX_RESULT_BYTES", "100000")
        lake.create_table("totals", {"name": "string", "n": "long"}).append(rows())
        yield lake


def rows(first: int = 0) -> list[dict[str, Any]]:
    return [{"name": f"name {n}", "n": n} for n in range(first, first + 200)]


def get(sql: str = ALL, headers: dict[str, str] | None = None, **fields: str) -> Answer:
    sent = event("", method="GET") | {"headers": headers or {}, "rawQueryString": urlencode({"query": sql, **fields})}
    return query.handler(sent, None)


def post(sql: str = ALL, **fields: Any) -> Answer:
    return query.handler(event(json.dumps({"query": sql, **fields})), None)


def place(answer: Answer) -> str:
    assert answer["statusCode"] == 303, answer["body"]
    assert answer["headers"]["Cache-Control"] == "no-store"
    assert json.loads(answer["body"])["result"] == answer["headers"]["Location"]
    return str(answer["headers"]["Location"])


def object_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def large(lake: alluvia.Lake) -> dict[str, int]:
    return {info.key.removeprefix(LARGE): info.size for info in lake.store.list(LARGE)}


def test_a_result_beyond_the_limit_is_a_link_to_all_of_it(lake: alluvia.Lake) -> None:
    answer = post(format="csv")
    with urlopen(place(answer), timeout=30) as found:
        body = found.read()
        assert found.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert body.decode().splitlines() == ["name,n", *(f"name {n},{n}" for n in range(200))]
    told = {name: answer["headers"][f"Alluvia-{name}"] for name in ("Rows", "Result-Bytes", "Versions", "Files-Read")}
    assert told == {"Rows": "200", "Result-Bytes": str(len(body)), "Versions": "totals=1", "Files-Read": "1"}
    assert post(ALL + " LIMIT 3")["statusCode"] == 200


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_it_is_stored_in_the_coding_that_was_asked_for(lake: alluvia.Lake, coding: str) -> None:
    url = place(get(headers={"accept-encoding": coding, "accept": "text/csv"}))
    with urlopen(url, timeout=30) as found:
        body = found.read()
        assert found.headers["Content-Encoding"] == coding
    whole = (
        gzip.decompress(body) if coding == "gzip" else pa.CompressedInputStream(pa.BufferReader(body), "zstd").read()
    )
    assert whole.decode().splitlines()[-1] == "name 199,199"


def test_parquet_is_a_file_that_readers_open(lake: alluvia.Lake) -> None:
    with urlopen(place(get(format="parquet", headers={"accept-encoding": "gzip"})), timeout=30) as found:
        assert found.headers["Content-Encoding"] is None
        assert pq.read_table(io.BytesIO(found.read())).to_pylist() == rows()


def test_the_same_result_is_found_again_while_the_versions_stand(lake: alluvia.Lake, s3_server: S3Server) -> None:
    text = "SELECT n, name FROM totals ORDER BY n"
    first, packed = get(text), get(text, {"accept-encoding": "gzip"})
    assert first["headers"]["ETag"][:-1] + '-gzip"' == packed["headers"]["ETag"]
    again = get(text)
    s3_server.requests()
    packed_again = get(text, {"accept-encoding": "gzip"})
    # A look for commits, and for the result; whether its object is there.
    assert s3_server.requests() == {"GET": 2, "HEAD": 1}
    names = [object_of(place(each)) for each in (first, packed)]
    assert [object_of(place(each)) for each in (again, packed_again)] == names
    caches = [each["headers"]["Alluvia-Cache"] for each in (first, packed, again, packed_again)]
    assert caches == ["miss", "miss", "hit", "hit"]
    assert again["headers"]["ETag"] == first["headers"]["ETag"]
    assert get(text, {"if-none-match": again["headers"]["ETag"]})["statusCode"] == 304
    lake.store.delete([LARGE + names[0]])
    assert object_of(place(get(text))) != names[0]
    lake["totals"].append([{"name": "more", "n": 1000}])
    with urlopen(place(get(text)), timeout=30) as found:
        assert found.read().endswith(b'{"n":1000,"name":"more"}\n')
    lake["totals"].delete("n = 1000")


def test_links_to_a_result_lead_to_no_newer_one(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT n, name FROM totals ORDER BY n DESC"
    place(get(text))

    def committed_meanwhile(*given: Any, **named: Any) -> Rendered:
        lake["totals"].append([{"name": "newest", "n": 2000}])
        return run(*given, **named)

    run = engine.run_rendered
    monkeypatch.setattr(answering, "run_rendered", committed_meanwhile)
    packed = get(text, {"accept-encoding": "gzip"})
    monkeypatch.undo()
    newest = get(text)
    assert packed["headers"]["ETag"] == newest["headers"]["ETag"][:-1] + '-gzip"'
    with urlopen(place(newest), timeout=30) as found:
        assert found.readline() == b'{"n":2000,"name":"newest"}\n'
    lake["totals"].delete("n = 2000")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"large": "error"}, "limit of 1000 bytes: add a LIMIT, .*; without large=error, the answer is a link"),
        ({"max_result_bytes": 500}, "limit of 500 bytes: add a LIMIT, select fewer columns, or aggregate$"),
        ({"max_result_bytes": 2000}, "limit of 2000 bytes: add a LIMIT, select fewer columns, or aggregate$"),
    ],
)
def test_who_wants_no_link_gets_a_413(lake: alluvia.Lake, fields: dict[str, Any], reason: str) -> None:
    place(get())  # which the lake keeps
    before = large(lake)
    for answer in (post(**fields), get(ALL, None, **{name: str(value) for name, value in fields.items()})):
        assert answer["statusCode"] == 413
        assert re.search(reason, error_of(answer))
    assert large(lake) == before
    assert post(large="later")["statusCode"] == 400


def test_the_limits_of_the_lake_hold(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "limit of 100000 bytes" in error_of(post("FROM range(50000)"))
    monkeypatch.delenv("ALLUVIA_MAX_RESULT_BYTES")
    assert "where ALLUVIA_MAX_RESULT_BYTES is set, larger results go to the lake" in error_of(post())


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_a_query_that_fails_late_leaves_nothing(lake: alluvia.Lake, form: str) -> None:
    before = large(lake)
    late = "SELECT CASE i WHEN 199999 THEN error('late') ELSE 'x' END AS x FROM range(200000) t(i)"
    answer = post(late, format=form, max_result_bytes=90_000)
    assert (answer["statusCode"], "larger than" in error_of(answer)) in ((413, True), (400, False))
    answer = post("SELECT CASE i WHEN 2999 THEN error('late') ELSE 'x' END AS x FROM range(3000) t(i)", format=form)
    assert (answer["statusCode"], "late" in error_of(answer)) == (400, True)
    assert large(lake) == before


def test_no_caller_keeps_more_than_its_share(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_CALLER_RESULT_BYTES", "6000")
    one, other = ({"authorization": f"Bearer {token(lake, grant('read:totals'))}"} for _ in range(2))
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    before = sum(large(lake).values())

    def ask(headers: dict[str, str], limit: int) -> Answer:
        return get(f"{ALL} LIMIT {limit}", headers | {"accept": "text/csv"})

    urls = [place(ask(one, 199)), place(ask(one, 198))]
    refused = ask(one, 197)
    assert (refused["statusCode"], error_of(refused).partition(",")[0].split()[-1]) == (429, "results")
    assert "more than 6000, the limit for one caller (ALLUVIA_CALLER_RESULT_BYTES)" in error_of(refused)
    assert 3500 < int(refused["headers"]["Retry-After"]) <= 3601
    urls.append(place(ask(other, 197)))  # others have room of their own
    bodies = []
    for url in urls:
        with urlopen(url, timeout=30) as found:
            bodies.append(found.read())
    assert [body.count(b"\n") for body in bodies] == [200, 199, 198]
    assert sum(large(lake).values()) == before + sum(map(len, bodies))
    assert ask(one, 3)["statusCode"] == 200  # what is in an answer needs no room

    monkeypatch.setenv("ALLUVIA_CALLER_RESULT_BYTES", "2000")
    third = {"authorization": f"Bearer {token(lake, grant('read:totals'))}"}
    answer = ask(third, 196)
    assert (answer["statusCode"], "all that one caller may have links to" in error_of(answer)) == (413, True)


def test_a_store_that_fails_half_way_is_a_503(lake: alluvia.Lake, s3_server: S3Server) -> None:
    before, fresh = large(lake), f"{ALL} LIMIT 150"
    s3_server.inject({"method": "POST", "match": LARGE, "fault": "status:503", "times": 20})
    assert post(fresh)["statusCode"] == 503
    s3_server.inject()
    assert large(lake) == before
    assert post(fresh)["statusCode"] == 303


def test_an_erasure_takes_large_results_with_it(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_table("people", {"name": "string"}).append([{"name": f"p{n}"} for n in range(300)])
    url = place(get("FROM people"))
    lake["people"].erase("name = 'p7'")
    with pytest.raises(HTTPError, match="404"):
        urlopen(url, timeout=30)
    assert large(lake) == {}
    with urlopen(place(get("FROM people")), timeout=30) as found:
        assert b'"p7"' not in found.read()

    def erased_meanwhile(*given: Any, **named: Any) -> Rendered:
        found = run(*given, **named)
        lake["people"].erase("name = 'p8'")
        lake.store.put(LARGE + "late", b"p8")  # as if the write had been slower than the erasure
        return found

    run = engine.run_rendered
    monkeypatch.setattr(answering, "run_rendered", erased_meanwhile)
    for ask, text in ((post, "SELECT name FROM people"), (get, "SELECT name AS n FROM people")):
        answer = ask(text)
        assert (answer["statusCode"], "rows of a table were erased" in error_of(answer)) == (503, True)
        lake["people"].append([{"name": "p8"}])
    monkeypatch.undo()
    assert {size for name, size in large(lake).items() if name != "late"} == {0}


def test_a_range_costs_as_much_whatever_the_query_reads(lake: alluvia.Lake, s3_server: S3Server) -> None:
    text = "SELECT n, name FROM totals WHERE n < 150 ORDER BY name"

    def asked(**headers: str) -> Answer:
        return get(text, {"accept": "text/csv", "user-agent": "a reader", **headers})

    sent = event("", method="HEAD") | {"rawQueryString": urlencode({"query": text})}
    head = query.handler(sent | {"headers": {"accept": "text/csv", "user-agent": "a reader"}}, None)
    size = int(head["headers"]["Content-Length"])
    assert (head["statusCode"], head["body"], size > 1000) == (200, "", True)
    s3_server.requests()
    parts = []
    for start in range(0, size, 900):
        part = asked(range=f"bytes={start}-{start + 899}")
        assert part["statusCode"] == 206
        assert s3_server.requests() == {"GET": 3, "HEAD": 1}
        parts.append(base64.b64decode(part["body"]))
    assert b"".join(parts).startswith(b"n,name\r\n0,name 0\r\n")
    assert b"".join(parts).count(b"\n") == 151
    too_large = asked(range=f"bytes=0-{size}")
    assert (too_large["statusCode"], too_large["headers"]["ETag"]) == (303, head["headers"]["ETag"])
    with urlopen(place(too_large), timeout=30) as found:
        assert found.read() == b"".join(parts)
    small = "SELECT n FROM totals WHERE n < 20 ORDER BY n"
    first = get(small, {"range": "bytes=0-9"})
    s3_server.requests()
    second = get(small, {"range": "bytes=10-19"})
    assert s3_server.requests() == {"GET": 2}
    assert (first["headers"]["ETag"], second["statusCode"]) == (second["headers"]["ETag"], 206)
