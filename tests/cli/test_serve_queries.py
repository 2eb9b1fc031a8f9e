"""Queries as the documentation of other systems sends them, to `alluvia serve` over real HTTP."""

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


def test_clickhouse(port: int) -> None:
    assert rows(send(port, "GET", "/q?query=SELECT%201%20AS%20x")) == [{"x": 1}]
    assert rows(send(port, "POST", "/q", "SELECT 1 AS x\n", Content_Type=FORM)) == [{"x": 1}]
    assert rows(send(port, "POST", "/q?query=SELECT%201%20AS%20x", "", Content_Type=FORM)) == [{"x": 1}]
    text = "SELECT n FROM trips WHERE n = $id AND name = $phrase"
    assert rows(send(port, "POST", "/q?param_id=2&param_phrase=t2", text, Content_Type=FORM)) == [{"n": 2}]
    packed, body = send(port, "GET", "/q?query=FROM%20range(5000)", Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(gzip.decompress(body).splitlines()) == 5000
    tsv, body = send(port, "GET", "/q?format=tsv&query=SELECT%20n,%20name%20FROM%20trips%20ORDER%20BY%20n")
    assert (tsv.status, body) == (200, b"n\tname\n0\tt0\n1\tt1\n2\tt2\n")


def test_tinybird(port: int) -> None:
    assert rows(send(port, "GET", "/q?q=SELECT+count(*)+AS+c+FROM+trips")) == [{"c": 3}]
    assert rows(send(port, "POST", "/q", "q=SELECT+count(*)+AS+c+FROM+trips", Content_Type=FORM)) == [{"c": 3}]
    assert rows(send(port, "POST", "/q", "SELECT count(*) AS c FROM trips", Content_Type="text/plain")) == [{"c": 3}]
