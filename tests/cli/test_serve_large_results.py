"""Large results of `alluvia serve`: links that clients follow, to paths that are signed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.request import Request, urlopen

import pyarrow.parquet as pq
import pytest
import requests

import alluvia
from alluvia.clock import ManualClock
from alluvia.operations.results.results import LARGE, new_large_key
from alluvia.server.large_results import Download, download
from alluvia.serverless.signed_paths import PathSigner
from alluvia.store import MemoryStore
from tests.serving import serving

ROWS = [{"n": n, "name": f"t{n}"} for n in range(500)]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("lake")
    alluvia.connect(str(folder)).create_table("trips", {"n": "long", "name": "string"}).append(ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLUVIA_RESULT_LIMIT_BYTES", "1000")
        with serving(folder, quiet=True) as (_, port):
            yield port


def send(port: int, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer, answer.read()


def link(port: int, form: str = "csv") -> str:
    answer, body = send(port, f"/q?format={form}&query=FROM%20trips%20ORDER%20BY%20n")
    assert (answer.status, json.loads(body)["result"]) == (303, answer.headers["Location"])
    return str(answer.headers["Location"])


def test_clients_follow_the_link(port: int) -> None:
    url = f"http://127.0.0.1:{port}/q"
    found = requests.post(url, json={"query": "FROM trips ORDER BY n", "format": "json"}, timeout=60)
    assert (found.status_code, [each.status_code for each in found.history], found.json()) == (200, [303], ROWS)
    assert found.headers["Content-Encoding"] == "gzip"
    # As pandas reads a URL.
    with urlopen(f"{url}?format=parquet&query=FROM%20trips%20ORDER%20BY%20n", timeout=60) as answer:
        assert pq.read_table(io.BytesIO(answer.read())).to_pylist() == ROWS
    with urlopen(Request(url, b"FROM trips ORDER BY n", {"Accept": "application/x-ndjson"}), timeout=60) as answer:
        assert [json.loads(line) for line in answer] == ROWS


def test_a_link_needs_to_be_as_it_was_given_out(port: int) -> None:
    path = link(port)
    answer, body = send(port, path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert len(body.splitlines()) == 501
    last = "0" if path[-1] != "0" else "1"
    for other in (path[:-1] + last, path.partition("?")[0], path.replace("expires=1", "expires=2"), path + "&a=b"):
        refused, why = send(port, other)
        assert (refused.status, b"the signature of this path is wrong" in why) == (403, True), other
    assert send(port, path, "POST")[0].status == 405
    assert send(port, path, Origin="http://evil.example")[0].status == 403


def test_ranges(port: int) -> None:
    path = link(port)
    answer, whole = send(port, path)
    tag, size = answer.headers["ETag"], len(whole)
    for asked, expected in {
        "bytes=0-9": whole[:10],
        "bytes=10-": whole[10:],
        "bytes=-7": whole[-7:],
        f"bytes={size - 1}-{size + 50}": whole[-1:],
    }.items():
        part, body = send(port, path, Range=asked)
        assert (part.status, body, part.headers["Content-Length"]) == (206, expected, str(len(expected))), asked
        at = whole.index(expected) if len(expected) > 1 else size - 1
        assert part.headers["Content-Range"] == f"bytes {at}-{at + len(expected) - 1}/{size}"
    for asked in ("bytes=5-2", "bytes=-", "bytes=0-1,3-4", "lines=1-2"):
        assert send(port, path, Range=asked)[1] == whole, asked
    assert send(port, path, Range="bytes=0-3", If_Range=tag)[0].status == 206
    assert send(port, path, Range="bytes=0-3", If_Range='"other"')[0].status == 200
    beyond, _ = send(port, path, Range=f"bytes={size}-")
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{size}")
    head, body = send(port, path, "HEAD")
    assert (head.status, body, head.headers["Content-Length"]) == (200, b"", str(size))


@pytest.mark.parametrize("caller", ["", "a caller's token"])
def test_a_link_expires_and_leads_to_results_alone(caller: str) -> None:
    clock, store = ManualClock(), MemoryStore()
    signer = PathSigner(clock, b"k" * 32)
    name = new_large_key(clock, "csv", None, caller).removeprefix(LARGE)
    store.put(LARGE + name, b"a\r\n" * 1_000_000)
    store.put("secret", b"x")

    def asked(path: str) -> dict[str, Any]:
        path, _, query = path.partition("?")
        return {"requestContext": {"http": {"method": "GET"}}, "rawPath": path, "rawQueryString": query, "headers": {}}

    event = asked(signer.sign("GET", f"/v1/results/{name}", 60))
    found = download(store, signer, event, None)
    assert isinstance(found, Download)
    assert (found.status, found.size, b"".join(found.body)) == (200, 3_000_000, b"a\r\n" * 1_000_000)
    other = download(store, signer, asked(signer.sign("GET", "/v1/results/../../../secret", 60)), None)
    assert isinstance(other, dict)
    assert other["statusCode"] == 404
    clock.advance(60)
    expired = download(store, signer, event, None)
    assert isinstance(expired, dict)
    assert (expired["statusCode"], "this path has expired: ask for a new one" in expired["body"]) == (403, True)
