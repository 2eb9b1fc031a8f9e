"""Queries as the documentation of other systems sends them, to `alluvia serve` over real HTTP.

Where they have another path, the answer says which one it is here; all else of the request stays as it is documented.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import quote

import pytest

import alluvia
from tests.serving import serving

FORM = "application/x-www-form-urlencoded"  # what curl says of any body


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("lake")
    lake = alluvia.connect(str(folder))
    lake.create_table("trips", {"n": "long", "name": "string"}).append([{"n": n, "name": f"t{n}"} for n in range(3)])
    lake.publish_query("trip", "SELECT name FROM trips WHERE n = $id", {"id": "long"})
    with serving(folder) as (_, port):
        yield port


def send(port: int, method: str, path: str, body: str | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    return answer, answer.read()


def rows(answer: tuple[HTTPResponse, bytes]) -> list[Any]:
    assert answer[0].status == 200, answer[1]
    return [json.loads(line) for line in answer[1].splitlines()]


# Requests of https://clickhouse.com/docs/interfaces/http: (method, path, body, headers, answer).
CLICKHOUSE: list[tuple[str, str, str | None, dict[str, str], str]] = [
    ("GET", "/q?query=SELECT%201%20AS%20x", None, {}, '{"x":1}\n'),
    ("POST", "/q", "SELECT 1 AS x\n", {"Content-Type": FORM}, '{"x":1}\n'),
    ("POST", "/q?query=SELECT%201%20AS%20x", "", {"Content-Type": FORM}, '{"x":1}\n'),
    ("POST", "/q", "SELECT 1 AS x, 2 AS y FORMAT JSONEachRow", {"Content-Type": FORM}, '{"x":1,"y":2}\n'),
    ("GET", "/q?query=SELECT+1+AS+x+FORMAT+TabSeparatedWithNames", None, {}, "x\n1\n"),
    ("GET", "/q?default_format=CSVWithNames&query=SELECT+1+AS+x", None, {}, "x\r\n1\r\n"),
    ("POST", "/q?default_format=CSVWithNames", "SELECT 1 AS x FORMAT JSONEachRow", {"Content-Type": FORM}, '{"x":1}\n'),
    ("POST", "/q", "SELECT 1 AS x", {"Content-Type": FORM, "X-ClickHouse-Format": "CSVWithNames"}, "x\r\n1\r\n"),
    (
        "POST",
        "/q?param_id=2&param_phrase=t2",
        "SELECT n FROM trips WHERE n = $id AND name = $phrase",  # in ClickHouse {id:UInt8} and {phrase:String}
        {"Content-Type": FORM},
        '{"n":2}\n',
    ),
]
# Requests of https://www.tinybird.co/docs/api-reference/query-api.
TINYBIRD: list[tuple[str, str, str | None, dict[str, str], str]] = [
    ("GET", "/q?q=SELECT+count(*)+AS+c+FROM+trips", None, {}, '{"c":3}\n'),
    ("POST", "/q", "q=SELECT count(*) AS c FROM trips FORMAT JSONEachRow", {"Content-Type": FORM}, '{"c":3}\n'),
    ("POST", "/q", "SELECT count(*) AS c FROM trips", {"Content-Type": "text/plain"}, '{"c":3}\n'),
    ("POST", "/q", '{"q": "SELECT count(*) AS c FROM trips"}', {"Content-Type": "application/json"}, '{"c":3}\n'),
    ("GET", "/v1/queries/trip.csv?id=1", None, {"Authorization": "Bearer any"}, "name\r\nt1\r\n"),
    ("GET", "/v1/queries/trip.ndjson?id=1", None, {}, '{"name":"t1"}\n'),
]
# What they document and we do not have: the answer says what to send.
ELSEWHERE = [
    ("GET", "/?query=SELECT%201", 404, "ClickHouse's / is /q here"),
    ("POST", "/", 404, "ClickHouse's / is /q here"),
    ("GET", "/ping", 404, "GET /healthz"),
    ("GET", "/v0/sql?q=SELECT+1", 404, "/v0/sql is /q here"),
    ("GET", "/v0/pipes/trip.json?id=1", 404, "GET /v1/queries/{name}.json"),
    ("POST", "/v0/events?name=trips", 404, "POST /v1/events/{table}"),
    ("POST", "/v0/datasources?name=trips", 404, "POST /v1/upload/{table}"),
    ("POST", "/upload/public/trips", 404, "POST /v1/upload/{table}"),
    ("GET", "/q?query=SELECT+1+FORMAT+JSON", 400, "format=json"),
    ("GET", "/q?query=SELECT+1&database=default", 400, "database is not a field of a request"),
    ("GET", "/q?q=SELECT+1&token=SECRET", 400, "send it in a header: Authorization: Bearer"),
    ("GET", "/v1/queries/trip.json?id=1&token=SECRET", 400, "send it in a header: Authorization: Bearer"),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "expected"), [*CLICKHOUSE, *TINYBIRD])
def test_as_documented(
    port: int, method: str, path: str, body: str | None, headers: dict[str, str], expected: str
) -> None:
    answer, found = send(port, method, path, body, **headers)
    assert (answer.status, found.decode()) == (200, expected)


@pytest.mark.parametrize(("method", "path", "status", "text"), ELSEWHERE)
def test_what_is_elsewhere_says_where(port: int, method: str, path: str, status: int, text: str) -> None:
    answer, found = send(port, method, path, "" if method == "POST" else None)
    error = json.loads(found)["error"]
    assert (answer.status, text in error, "SECRET" in error) == (status, True, False), error


def test_seafowl(port: int) -> None:
    text = "SELECT count(*) AS c FROM trips WHERE name LIKE 't%'"
    assert rows(send(port, "POST", "/q", json.dumps({"query": text}), Content_Type="application/json")) == [{"c": 3}]
    path = f"/q/{sha256(text.encode()).hexdigest()}"
    first, body = send(port, "GET", path, X_Seafowl_Query=quote(text))
    assert (first.status, body) == (200, b'{"c":3}\n')
    tag = str(first.headers["ETag"])
    again, body = send(port, "GET", path, X_Seafowl_Query=quote(text), If_None_Match=tag)
    assert (again.status, body, again.headers["ETag"]) == (304, b"", tag)
    head, body = send(port, "HEAD", path, X_Seafowl_Query=quote(text))
    assert (head.status, body, head.headers["ETag"], head.headers["Alluvia-Cache"]) == (200, b"", tag, "hit")
    assert send(port, "GET", "/q/00", X_Seafowl_Query=quote(text))[0].status == 400
    write = "DELETE FROM trips"
    assert send(port, "GET", f"/q/{sha256(write.encode()).hexdigest()}", X_Seafowl_Query=write)[0].status == 405
    encoded, body = send(port, "GET", f"/q/{sha256(text.encode()).hexdigest()}.csv", X_Seafowl_Query=quote(text))
    assert (encoded.headers["Content-Type"], body) == ("text/csv; charset=utf-8", b"c\r\n3\r\n")


def test_compressed_answers(port: int) -> None:
    packed, body = send(port, "GET", "/q?query=FROM%20range(5000)", Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(gzip.decompress(body).splitlines()) == 5000
    tsv, body = send(port, "GET", "/q?format=tsv&query=SELECT%20n,%20name%20FROM%20trips%20ORDER%20BY%20n")
    assert (tsv.status, body) == (200, b"n\tname\n0\tt0\n1\tt1\n2\tt2\n")
